# The Debian package. What is in it says [package.metadata.deb] in crates/server/Cargo.toml.

# For Debian, 1.0.0-rc.1 would be newer than 1.0.0; 1.0.0~rc.1 is older.
debian_version() { echo "${version/-/"~"}-1"; }

build_deb() {
  if ! command -v cargo-deb >/dev/null; then
    say "installing cargo-deb (about a minute on two cores)"
    cargo install --locked cargo-deb@3.8.0
  fi
  need_apt dpkg-shlibdeps dpkg-dev
  local quick=() file
  file=posthorn_$(debian_version)_$(dpkg --print-architecture).deb
  [ -z "$fast" ] || quick=(--fast)
  build_native
  stage_documents "$stage/posthorn"
  debian_changelog >"$stage/doc/changelog.Debian"
  cargo deb --no-build --no-strip -q -p posthorn-server "${quick[@]}" --deb-version "$(debian_version)" --output "$out/$file"
  dpkg-deb --info "$out/$file" >/dev/null
  ls -l "$out/$file"
}

debian_changelog() {
  cat <<TEXT
posthorn ($(debian_version)) stable; urgency=medium

  * Version $version. What changed is in changelog.gz beside this file.

 -- Posthorn maintainers <posthorn@posthorn.example>  $(LC_ALL=C date -u -R -d "@$epoch")
TEXT
}
