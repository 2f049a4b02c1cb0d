# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# A toolkit of CUDA 12.4, for the wheel of drivers that are older than CUDA 13: the
# parts that a build needs, of the packages of Debian 13, without installing any. It
# is NVIDIA's; nothing of it is part of this project.

# FILE SHA256, below pool of a mirror.
CUDA12_PACKAGES=(
  non-free/n/nvidia-cuda-toolkit/nvidia-cuda-toolkit_12.4.131~12.4.1-2_amd64.deb
  cd5fe85aee38d108b315f408a688641478f2402622a10c677478eb7a6c4e5319
  non-free/n/nvidia-cuda-toolkit/nvidia-cuda-dev_12.4.127~12.4.1-2_amd64.deb
  d846838f914a0176948d48a8bcade5d6dbcccb5c9374343f6475f5503f173ee0
  non-free/n/nvidia-cuda-toolkit/libcudart12_12.4.127~12.4.1-2_amd64.deb
  361b3721cf84bf068e111ff013c819de61cb475268b0d38db99839471f1b4130
  main/c/cccl/libcu++-dev_2.3.2-2_all.deb
  30e911c1909265591b5ea793df0e49e56bed631238b68b3e75c97590c4985686
  main/c/cccl/libcub-dev_2.3.2-2_all.deb
  4a7e7c24ef2994140e47dba59507db60e281f968f17c18cf1cadc9c27c17c26b
  main/c/cccl/libthrust-dev_2.3.2-2_all.deb
  61fe44b65834efad9b079452ebec7396d4b37712d251421f4218b3bc652a3147
)

# unpack_cuda12 FOLDER: the packages in the folders of NVIDIA's own installer.
unpack_cuda12() {
  local folder="$1" debian="$1/debian/usr" index path file
  mkdir -p "$folder/debian" "$folder/bin" "$folder/lib64" "$folder/nvvm/bin"
  for ((index = 0; index < ${#CUDA12_PACKAGES[@]}; index += 2)); do
    path="${CUDA12_PACKAGES[index]}"
    file="$folder/${path##*/}"
    fetch_debian "$path" "${CUDA12_PACKAGES[index + 1]}" "$file" || return 1
    # Without the static libraries, 2 GB.
    dpkg-deb --fsys-tarfile "$file" | tar -x -C "$folder/debian" \
      --exclude='*_static*.a' --exclude='*/compute-sanitizer' || return 1
    [[ "$path" != */nvidia-cuda-dev_* ]] ||
      dpkg-deb --fsys-tarfile "$file" | tar -x -C "$folder/debian" \
        ./usr/lib/x86_64-linux-gnu/libcudart_static.a || return 1
    rm "$file"
  done
  mv "$debian/include" "$folder/include"
  mv "$debian"/bin/{cudafe++,cuobjdump,fatbinary,nvlink,ptxas} \
    "$debian"/lib/nvidia-cuda-toolkit/bin/{nvcc,crt} "$folder/bin/"
  mv "$debian/lib/nvidia-cuda-toolkit/bin/cicc" "$folder/nvvm/bin/"
  mv "$debian/lib/nvidia-cuda-toolkit/libdevice" "$folder/nvvm/"
  mv "$debian"/lib/x86_64-linux-gnu/libcud{adevrt.a,art*} "$folder/lib64/"
  mv "$debian/share/doc/nvidia-cuda-toolkit/copyright" "$folder/LICENSE"
  rm -r "$folder/debian"
  cat >"$folder/bin/nvcc.profile" <<'PROFILE'
TOP = $(_HERE_)/..
CICC_PATH = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(CICC_PATH):$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
PROFILE
}

# provide_cuda12 exports CUDACXX, the nvcc of CUDA 12.4 in the cache, for find_cuda.
provide_cuda12() {
  [[ "$(uname -m)" == x86_64 ]] || die "expected x86-64, found $(uname -m)"
  have dpkg-deb || die "expected dpkg-deb, found none"
  local key folder
  key=$({
    printf '%s\n' "${CUDA12_PACKAGES[@]}"
    declare -f unpack_cuda12
  } | sha256sum | cut -c 1-16)
  folder="$CACHE/cuda-12.4-$key"
  mkdir -p "$CACHE" || die "CERES_EXT_CACHE: cannot create $CACHE"
  if [[ ! -d "$folder" ]]; then
    rm -rf "$folder.work"
    say "fetching CUDA 12.4 of Debian 13, 1 GB, into $folder"
    unpack_cuda12 "$folder.work" || die "no mirror has CUDA 12.4 of Debian 13"
    mv "$folder.work" "$folder"
  fi
  say "CUDA is NVIDIA's; its licence: $folder/LICENSE"
  export CUDACXX="$folder/bin/nvcc"
}
