# The container image: an archive in OCI's format, with the static program, a configuration and two folders.
# Nothing is downloaded: it is built from nothing.

image_bytes_max=$((40 << 20))
image_user=10001

build_image() {
  need_apt umoci umoci
  if [ -n "$binary" ]; then build_program; else static_for_image; fi
  require_static "$stage/posthorn"
  local layout=$stage/image/layout files=$stage/image/files archive=$out/posthorn-$version-$(uname -m).oci.tar
  rm -rf "$stage/image"
  mkdir -p "$files"/{etc/posthorn,var/lib/posthorn,tmp}
  install -m 0755 "$stage/posthorn" "$files/posthorn"
  install -m 0644 packaging/image/posthorn.yaml "$files/etc/posthorn/posthorn.yaml"
  chmod 0700 "$files/var/lib/posthorn"
  chmod 1777 "$files/tmp"
  # The owner of the data folder is the owner of a new volume that is mounted there.
  local tar=(tar --sort=name --numeric-owner --mtime="@$epoch" --directory "$files" --no-recursion)
  "${tar[@]}" --owner=0 --group=0 -cf "$stage/image/layer.tar" posthorn etc etc/posthorn etc/posthorn/posthorn.yaml tmp var var/lib
  "${tar[@]}" --owner=$image_user --group=$image_user -rf "$stage/image/layer.tar" var/lib/posthorn

  umoci init --layout "$layout"
  umoci new --image "$layout:$version"
  umoci raw add-layer --image "$layout:$version" --history.created "$(stamp)" --history.created_by packaging/build "$stage/image/layer.tar"
  umoci config --image "$layout:$version" --no-history \
    --created "$(stamp)" --author 'Posthorn maintainers' --architecture "$(go_architecture)" --os linux \
    --config.user "$image_user:$image_user" --config.workingdir /var/lib/posthorn \
    --config.entrypoint /posthorn --config.cmd serve --config.cmd --config --config.cmd /etc/posthorn/posthorn.yaml \
    --config.exposedports 8080/tcp --config.volume /var/lib/posthorn --config.stopsignal SIGTERM \
    --config.label org.opencontainers.image.title=Posthorn \
    --config.label "org.opencontainers.image.description=Notification delivery server for webhooks and Web Push" \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label "org.opencontainers.image.revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
    --config.label "org.opencontainers.image.created=$(stamp)" \
    --config.label org.opencontainers.image.licenses=Apache-2.0
  umoci gc --layout "$layout"
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -cf "$archive" --directory "$layout" .
  local bytes
  bytes=$(stat -c %s "$archive")
  if [ "$bytes" -gt "$image_bytes_max" ]; then
    rm -f "$archive"
    fail "the image has $bytes bytes, which is more than $image_bytes_max"
  fi
  ls -l "$archive"
}

# The tarball's program, which is built when it is not there yet.
static_for_image() {
  . packaging/parts/tarball.sh
  build_static "$(uname -m)"
}

stamp() { date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ; }
go_architecture() { case "$(uname -m)" in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) uname -m ;; esac; }
