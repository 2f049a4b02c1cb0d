# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# An image with the programs, the library and ceres_ext_run, as a package of the
# distribution:
#
#   docker build --build-arg ARCHITECTURES='80-real;90-real;120' -t ceres_ext .
#   docker run --gpus all -v "$PWD:/data" ceres_ext \
#     bundle_adjuster --input=/data/problem.txt
#
# ARCHITECTURES: as CMAKE_CUDA_ARCHITECTURES, since no GPU is there during the
# build. A container needs NVIDIA's container toolkit for a GPU; without one all
# programs run on the host.
ARG CUDA=13.0.1
ARG UBUNTU=24.04

FROM nvidia/cuda:${CUDA}-devel-ubuntu${UBUNTU} AS build
ARG ARCHITECTURES="75-real;80-real;86-real;90-real;100-real;120"
ENV CERES_EXT_CUDA_ARCHITECTURES=${ARCHITECTURES} DEBIAN_FRONTEND=noninteractive
COPY . /ceres_ext
WORKDIR /ceres_ext
RUN scripts/setup && \
    cpack -G DEB --config build/release/CPackConfig.cmake -B /package

# cuSOLVER and cuBLAS, for exact steps, are in the image "runtime".
FROM nvidia/cuda:${CUDA}-runtime-ubuntu${UBUNTU}
COPY --from=build /package/*.deb /tmp/
RUN apt-get update && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      /tmp/*.deb && \
    rm -rf /tmp/*.deb /var/lib/apt/lists/*
