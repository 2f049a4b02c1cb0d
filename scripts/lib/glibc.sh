# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# The headers and libraries of an old C library, so that what is linked with them
# runs on distributions that are years older than this one: glibc 2.31 of Debian
# 11, the oldest that Debian's mirrors hold. python/src/older_glibc.c has what gcc's
# own libstdc++ needs beyond it, and replaces what is newer in it than 2.28.

# FILE, below pool of a mirror, its SHA256 for x86-64 and that for 64-bit Arm.
GLIBC_PACKAGES=(
  main/g/glibc/libc6_2.31-13+deb11u11
  05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282
  baaa9aa184e2f21738c5819055e6740cc5b22f198e3f416e33f82b40ff6933d8
  main/g/glibc/libc6-dev_2.31-13+deb11u11
  e7f7b45d9c5cfcf37609f0b6efd3c645272c812144703af89dfd32218fcb0fd3
  28d478134722dcd4b0bd2045a199301d18713bf95947b9fce66634e7aeacab2e
  main/l/linux/linux-libc-dev_5.10.223-1
  e3be603bd12377bb90fcfb0f2048ca3a81c886e49d6f09945b82159d1c54f7b2
  8b6374a64412d33eac61d74f77b8f932da4b8a707ea8a614791e2a35b8917618
  main/z/zlib/zlib1g-dev_1.2.11.dfsg-2+deb11u2
  f49fc849870c4e64fed2794722841ee950c1788f7fe90b3a091e6a098a46cd33
  6aa99970b3af7dbc6e34d7b55b493ba65b1a2d7c18cea042e96e271f1bb8ecfe
  main/b/bzip2/libbz2-dev_1.0.8-4
  88195859736fa4686d220736f4adfefea09638be4d04bc3b7804f67237c0c336
  33ae563058c4f313f226b007290f86c432ebd480762380e9522943a7f77db09e
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
  file="$folder/root/usr/lib/$target/libbz2.a"
  rm "$file"
  "$ar" rcs "$file" "$source"/*.o
  rm -r "$source" "$folder/bzip2.tar.gz"
}

# write_compiler LANGUAGE COMPILER FILE: FILE is the compiler with root/ in place of
# its C library. A cross compiler has a newer C library: its headers are left out, and
# its libstdc++.so, which expects that library, is linked with the older one.
write_compiler() {
  local options="" own="\|/$target/include\$|"
  if [[ "$target" != "$(uname -m)"* ]]; then
    options=$("$2" -v -E -x "$1" /dev/null 2>&1 |
      sed -n "/^#include </,$own{/^#/d;${own}d;s/^/ -isystem/p}" | tr -d '\n')
    options="-nostdinc$options -isystem \"\$root/usr/include/$target\" \
-isystem \"\$root/usr/include\" -Wl,--allow-shlib-undefined"
  fi
  cat >"$3" <<WRAPPER
#!/bin/sh
root=\$(dirname "\$0")/../root
exec $(command -v "$2") --sysroot="\$root" $options -B"\$root/usr/lib/$target" \\
  -L"\$root/lib/$target" "\$@"
WRAPPER
  chmod +x "$3"
}

# unpack_glibc FOLDER: root/ and the compilers bin/cc and bin/c++.
unpack_glibc() {
  local folder="$1" index path file link name
  mkdir -p "$folder/bin"
  for ((index = 0; index < ${#GLIBC_PACKAGES[@]}; index += 3)); do
    path="${GLIBC_PACKAGES[index]}_$debian.deb"
    file="$folder/${path##*/}"
    fetch_debian "$path" "${GLIBC_PACKAGES[index + column]}" "$file" || return 1
    dpkg-deb -x "$file" "$folder/root"
    rm "$file"
  done
  # The packages' links and linker scripts are those of a whole system.
  find "$folder/root" -type l -lname '/*' -print0 |
    while IFS= read -r -d '' link; do
      name=$(readlink "$link")
      ln -sfn "$(realpath -m --relative-to "${link%/*}" "$folder/root$name")" "$link"
    done
  write_compiler c "${compilers[0]}" "$folder/bin/cc"
  write_compiler c++ "${compilers[1]}" "$folder/bin/c++"
  build_bzip2 "$folder"
}

# provide_glibc [aarch64] sets GLIBC to a folder of unpack_glibc, in the cache.
provide_glibc() {
  [[ "$(uname -m)" == x86_64 ]] || die "expected x86-64, found $(uname -m)"
  have dpkg-deb || die "expected dpkg-deb, found none"
  local target=x86_64-linux-gnu debian=amd64 column=1 compilers=(cc c++) ar=ar key
  if [[ -n "${1:-}" ]]; then
    target=aarch64-linux-gnu debian=arm64 column=2
    compilers=("$target-gcc" "$target-g++") ar="$target-ar"
  fi
  key=$({
    printf '%s\n' "${GLIBC_PACKAGES[@]}"
    command -v "${compilers[@]}"
    declare -f unpack_glibc build_bzip2 write_compiler
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
