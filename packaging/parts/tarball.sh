# Programs that need nothing of the system they run on, with their man pages and completions.
#
# The C library inside is musl where Rust's target for it is installed (rustup target add x86_64-unknown-linux-musl
# aarch64-unknown-linux-musl); zig is its compiler and linker then. Otherwise it is glibc: this machine's own for its
# processor, and Debian's for the other one, where this is a Debian whose Rust is new enough.
. packaging/parts/debian.sh

build_tarball() {
  if [ -n "$binary" ]; then
    build_program
    pack_tarball "$(uname -m)"
    return
  fi
  local arch
  for arch in x86_64 aarch64; do
    if [ -z "$(library_for "$arch")" ]; then
      skipped "tarball for $arch: Rust's target $arch-unknown-linux-musl is not installed (rustup target add)," \
        "and Debian's Rust for it cannot be had"
      continue
    fi
    build_static "$arch"
    pack_tarball "$arch"
  done
}

# The C library that a static program for this processor gets; nothing when it cannot be built here.
library_for() {
  if [ -d "$(rustc --print sysroot)/lib/rustlib/$1-unknown-linux-musl" ]; then
    echo musl
  elif [ "$1" = "$(uname -m)" ] || cross_tools "$1" >&2; then
    echo gnu
  fi
}

# The static program for a processor in $stage/posthorn.
build_static() {
  local arch=$1 library target
  library=$(library_for "$arch")
  target=$arch-unknown-linux-$library
  if [ "$library" = musl ]; then
    zig_tools
    CARGO_BUILD=zigbuild build_program --target "$target"
  else
    echo "Rust's target $arch-unknown-linux-musl is not installed: the program contains glibc instead"
    (
      [ "$arch" = "$(uname -m)" ] || use_cross_tools "$arch"
      export RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static"
      build_program --target "$target"
    )
  fi
  split_symbols "$(target_folder)/$target/dist/posthorn" "posthorn-$version-$target-static" "$arch"
}

# Debian's Rust with its library for another processor, in a folder: it would not be installed beside rustup. The linker
# and the C library are packages that disturb nothing. Fails when they cannot be had, or are too old.
cross_tools() {
  local arch=$1 tools debian wanted
  case "$arch" in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; *) return 1 ;; esac
  # The compiler is started in many folders.
  tools=$(realpath -m "$(target_folder)/packaging-cross")
  if [ ! -d "$tools/root/usr/lib/rustlib/$arch-unknown-linux-gnu" ]; then
    say "fetching Debian's Rust for $arch"
    mkdir -p "$tools" && unpack_debian "$tools/root" '' rustc-web "libstd-rust-web-dev:$debian" || return 1
  fi
  debian_wrapper "$tools/rustc" "$tools/root" /usr/bin/rustc --sysroot "$tools/root/usr" || return 1
  "$tools/rustc" --version || return 1
  wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
  "$tools/rustc" --version | awk '{ print $2 }' | cat <(echo "$wanted") - | sort --check=quiet --version-sort || return 1
  need_apt "$arch-linux-gnu-gcc" "gcc-${arch/_/-}-linux-gnu" "libc6-dev-$debian-cross"
}
use_cross_tools() {
  export RUSTC
  RUSTC=$(realpath -m "$(target_folder)/packaging-cross/rustc")
  export "CARGO_TARGET_${1^^}_UNKNOWN_LINUX_GNU_LINKER=$1-linux-gnu-gcc"
}

zig_tools() {
  local tools
  tools=$(target_folder)/packaging-zig
  if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
    say "installing zig and cargo-zigbuild"
    need_pip
    rm -rf "$tools"
    python3 -m pip install --quiet --disable-pip-version-check --no-warn-script-location --root-user-action=ignore \
      --target "$tools" 'ziglang==0.17.0' 'cargo-zigbuild==0.24.0'
  fi
  export PATH="$tools/bin:$PATH" PYTHONPATH="$tools"
}

pack_tarball() {
  local arch=$1 name=posthorn-$version-$1-linux
  local folder=$stage/tarball/$name
  require_static "$stage/posthorn"
  if [ "$arch" = "$(uname -m)" ]; then
    stage_documents "$stage/posthorn"
  elif [ ! -d "$stage/man" ]; then
    # Man pages are the same for all processors, and another one's program does not run here.
    cargo build --locked -p posthorn-server --bin posthorn
    stage_documents "$(target_folder)/debug/posthorn"
  fi
  rm -rf "$stage/tarball"
  mkdir -p "$folder"/{bin,etc,lib/systemd/system,share/man/man1,share/posthorn}
  mkdir -p "$folder"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
  install -m 0755 "$stage/posthorn" "$folder/bin/posthorn"
  install -m 0644 "$stage"/man/*.1.gz "$folder/share/man/man1/"
  install -m 0644 "$stage/completions/posthorn.bash" "$folder/share/bash-completion/completions/posthorn"
  install -m 0644 "$stage/completions/_posthorn" "$folder/share/zsh/site-functions/_posthorn"
  install -m 0644 "$stage/completions/posthorn.fish" "$folder/share/fish/vendor_completions.d/posthorn.fish"
  install -m 0644 packaging/deb/posthorn.yaml "$folder/etc/posthorn.yaml"
  sed 's|/usr/bin/posthorn|/usr/local/bin/posthorn|' packaging/deb/posthorn.service >"$folder/lib/systemd/system/posthorn.service"
  install -m 0644 deploy/prometheus/posthorn.rules.yml deploy/grafana/posthorn.json "$folder/share/posthorn/"
  install -m 0644 LICENSE README.md CHANGELOG.md "$stage/doc/third-party.txt" "$folder/"
  tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --mode='u+w,go-w' \
    --directory "$stage/tarball" "$name" | gzip -9n >"$out/$name.tar.gz"
  ls -l "$out/$name.tar.gz"
}
