# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# The headers and libraries of an old C library, so that what is linked with them
# runs on distributions that are years older than this one: glibc 2.31 of Debian
# 11, the oldest that Debian's mirrors hold. python/src/older_glibc.c has what gcc's
# own libstdc++ needs beyond it, and replaces what is newer in it than 2.28.

# FILE SHA256, below pool of a mirror.
GLIBC_PACKAGES=(
  main/g/glibc/libc6_2.31-13+deb11u11_amd64.deb
  05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282
  main/g/glibc/libc6-dev_2.31-13+deb11u11_amd64.deb
  e7f7b45d9c5cfcf37609f0b6efd3c645272c812144703af89dfd32218fcb0fd3
  main/l/linux/linux-libc-dev_5.10.223-1_amd64.deb
  e3be603bd12377bb90fcfb0f2048ca3a81c886e49d6f09945b82159d1c54f7b2
  main/z/zlib/zlib1g-dev_1.2.11.dfsg-2+deb11u2_amd64.deb
  f49fc849870c4e64fed2794722841ee950c1788f7fe90b3a091e6a098a46cd33
  main/b/bzip2/libbz2-dev_1.0.8-4_amd64.deb
  88195859736fa4686d220736f4adfefea09638be4d04bc3b7804f67237c0c336
)

# bzip2's source, because Debian's static library is not position-independent.
BZIP2_SOURCE=(main/b/bzip2/bzip2_1.0.8.orig.tar.gz
  ab5a03176ee106d3f0fa90e381da478ddae405918153cca248e682cd0c4a2269)

# fetch_debian PATH SHA256 FILE: from the pool of a mirror.
fetch_debian() {
  local url
  for url in $(mirror_urls) http://deb.debian.org/debian \
    http://archive.debian.org/debian; do
    download "$url/pool/$1" "$3" "$2" && return 0
  done
  return 1
}

# build_bzip2 FOLDER: replaces the static library of root/.
build_bzip2() {
  local folder="$1" source="$1/bzip2" file
  fetch_debian "${BZIP2_SOURCE[@]}" "$folder/bzip2.tar.gz" || return 1
  mkdir "$source"
  tar -xf "$folder/bzip2.tar.gz" -C "$source" --strip-components=1
  for file in blocksort bzlib compress crctable decompress huffman randtable; do
    "$folder/bin/cc" -O2 -fPIC -D_FILE_OFFSET_BITS=64 -c "$source/$file.c" \
      -o "$source/$file.o" || return 1
  done
  file="$folder/root/usr/lib/x86_64-linux-gnu/libbz2.a"
  rm "$file"
  ar rcs "$file" "$source"/*.o
  rm -r "$source" "$folder/bzip2.tar.gz"
}

# unpack_glibc FOLDER: root/ and the compilers bin/cc and bin/c++, which are those
# of this machine with root/ in place of its C library.
unpack_glibc() {
  local folder="$1" index path file link target compiler
  mkdir -p "$folder/bin"
  for ((index = 0; index < ${#GLIBC_PACKAGES[@]}; index += 2)); do
    path="${GLIBC_PACKAGES[index]}"
    file="$folder/${path##*/}"
    fetch_debian "$path" "${GLIBC_PACKAGES[index + 1]}" "$file" || return 1
    dpkg-deb -x "$file" "$folder/root"
    rm "$file"
  done
  # The packages' links and linker scripts are those of a whole system.
  find "$folder/root" -type l -lname '/*' -print0 |
    while IFS= read -r -d '' link; do
      target=$(readlink "$link")
      ln -sfn "$(realpath -m --relative-to "${link%/*}" "$folder/root$target")" "$link"
    done
  for compiler in cc c++; do
    cat >"$folder/bin/$compiler" <<'WRAPPER'
#!/bin/sh
root=$(dirname "$0")/../root
exec COMPILER --sysroot="$root" -B"$root/usr/lib/x86_64-linux-gnu" \
  -L"$root/lib/x86_64-linux-gnu" "$@"
WRAPPER
    sed -i "s|COMPILER|$(command -v "$compiler")|" "$folder/bin/$compiler"
    chmod +x "$folder/bin/$compiler"
  done
  build_bzip2 "$folder"
}

# provide_glibc sets GLIBC to a folder of unpack_glibc, in the cache.
provide_glibc() {
  [[ "$(uname -m)" == x86_64 ]] || die "expected x86-64, found $(uname -m)"
  have dpkg-deb || die "expected dpkg-deb, found none"
  local key
  key=$({
    printf '%s\n' "${GLIBC_PACKAGES[@]}"
    command -v cc c++
    declare -f unpack_glibc build_bzip2
  } | sha256sum | cut -c 1-16)
  GLIBC="$CACHE/glibc-2.31-$key"
  mkdir -p "$CACHE" || die "CERES_EXT_CACHE: cannot create $CACHE"
  [[ ! -d "$GLIBC" ]] || return 0
  rm -rf "$GLIBC.work"
  say "fetching glibc 2.31 of Debian 11 into $GLIBC"
  unpack_glibc "$GLIBC.work" ||
    die "no mirror has glibc 2.31 of Debian 11; --local builds without it"
  mv "$GLIBC.work" "$GLIBC"
}
