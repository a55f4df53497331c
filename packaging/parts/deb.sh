# The Debian package. What is in it says [package.metadata.deb] in crates/server/Cargo.toml.

build_deb() {
  if ! command -v cargo-deb >/dev/null; then
    say "installing cargo-deb (about a minute on two cores)"
    cargo install --locked cargo-deb
  fi
  need_apt dpkg-shlibdeps dpkg-dev
  local quick=()
  [ -z "$fast" ] || quick=(--fast)
  build_native
  stage_documents "$stage/posthorn"
  debian_changelog >"$stage/doc/changelog.Debian"
  cargo deb --no-build --no-strip -q -p posthorn-server "${quick[@]}" --deb-version "$version-1" --output "$out/"
  dpkg-deb --info "$out/posthorn_$version-1_$(dpkg --print-architecture).deb" >/dev/null
  ls -l "$out/posthorn_$version-1_$(dpkg --print-architecture).deb"
}

debian_changelog() {
  cat <<TEXT
posthorn ($version-1) stable; urgency=medium

  * Version $version. What changed is in changelog.gz beside this file.

 -- Posthorn maintainers <posthorn@posthorn.example>  $(LC_ALL=C date -u -R -d "@$epoch")
TEXT
}
