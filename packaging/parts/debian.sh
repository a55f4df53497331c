# Packages of Debian, unpacked into a folder instead of being installed: of another release, for another processor, or in
# conflict with what is installed.

# unpack_debian FOLDER SUITE PACKAGE...: with all that they need, from where this machine has its own packages. SUITE is the
# name of a release, or nothing for this machine's own. A package for another processor is named like `libc6:arm64`. Fails
# where this is no Debian, or where they cannot be had.
unpack_debian() {
  local folder=$1 suite=$2 place=$1.apt codename file archive
  shift 2
  command -v apt-get >/dev/null || return 1
  codename=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") || return 1
  rm -rf "$place" "$folder"
  mkdir -p "$place"/{state/lists/partial,cache/archives/partial,etc/{sources.list.d,apt.conf.d,preferences.d}} "$folder"
  : >"$place/state/status"
  for file in sources.list sources.list.d/debian.sources; do
    [ ! -f "/etc/apt/$file" ] || sed "s/\b$codename\b/${suite:-$codename}/g" "/etc/apt/$file" >"$place/etc/$file"
  done
  {
    printf '%s\n' "Dir::State \"$place/state\";" "Dir::State::status \"$place/state/status\";" \
      "Dir::Cache \"$place/cache\";" "Dir::Etc \"$place/etc\";" 'APT::Sandbox::User "root";' \
      "APT::Architectures:: \"$(dpkg --print-architecture)\";"
    printf '%s\n' "$@" | sed -n 's/.*:\(.*\)/APT::Architectures:: "\1";/p' | sort -u
  } >"$place/apt.conf"
  APT_CONFIG=$place/apt.conf apt-get update -qq || return 1
  APT_CONFIG=$place/apt.conf apt-get install -y -qq --download-only --no-install-recommends "$@" >/dev/null || return 1
  for archive in "$place"/cache/archives/*.deb; do
    dpkg-deb --extract "$archive" "$folder" || return 1
  done
  rm -rf "$place"
}

# debian_wrapper FILE FOLDER PROGRAM [ARGUMENT...]: writes a file that starts a program of that folder with the libraries that
# were unpacked with it, and with these arguments before its own. FOLDER is $root there.
debian_wrapper() {
  local file=$1 folder=$2 program=$3
  shift 3
  cat >"$file" <<TEXT
#!/bin/sh
root=$folder
libraries=\$root/usr/lib/$(uname -m)-linux-gnu:\$root/lib/$(uname -m)-linux-gnu
for loader in "\$root"/usr/lib/$(uname -m)-linux-gnu/ld-linux-*.so.* "\$root"/lib/$(uname -m)-linux-gnu/ld-linux-*.so.*; do
  [ ! -e "\$loader" ] || exec "\$loader" --library-path "\$libraries" "\$root$program" $* "\$@"
done
TEXT
  chmod 0755 "$file"
}
