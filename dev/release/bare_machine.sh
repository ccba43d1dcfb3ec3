#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the wheel of a release on a bare Debian or Ubuntu, which has only Python, and asks it for a route.
# Needs root and debootstrap. Mounts are seen by this script alone, and end with it:
#   unshare --mount --pid --fork --kill-child --propagation private sh dev/release/bare_machine.sh DIST SUITE [MIRROR [SCRIPT]]
# DIST: folder of ./routelake release. SUITE, MIRROR, SCRIPT: as for debootstrap. Instead of SUITE, a tar file of what
# debootstrap makes saves some minutes.
set -eu

dist=$1
shift
root=$(mktemp -d)
trap 'exit 1' HUP INT TERM
trap 'umount -l "$root/proc" "$root/dev" 2>/dev/null || true; rm -rf --one-file-system "$root"' EXIT

echo "a bare machine: $1"
if [ -f "$1" ]; then
    tar -xf "$1" -C "$root"
else
    debootstrap --variant=minbase --components=main,universe --include=python3,python3-venv,ca-certificates "$1" "$root" \
        ${2:+"$2"} ${3:+"$3"} >"$root.log" 2>&1 || {
        tail -n 5 "$root.log"
        exit 1
    }
    rm "$root.log"
fi
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" # with the authority of a company's package index, if any
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp -r "$dist" "$root/dist"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev" # devices of its own: those of this machine stay out of reach
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/zero" c 1 5
mknod -m 666 "$root/dev/random" c 1 8
mknod -m 666 "$root/dev/urandom" c 1 9
ln -s /proc/self/fd "$root/dev/fd"
mkdir -m 1777 "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"

# shellcheck disable=SC2016
chroot "$root" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin LANG=C.UTF-8 HOME=/root \
    DEBIAN_FRONTEND=noninteractive PIP_NO_COMPILE=1 PIP_CERT=/etc/ssl/certs/ca-certificates.crt sh -eu -c '
    python3 --version
    python3 -m venv /opt/routelake
    /opt/routelake/bin/pip install -q --no-cache-dir "$(echo /dist/routelake-*.whl)[server]"
    routelake=/opt/routelake/bin/routelake
    $routelake --version

    if $routelake serve --data-dir /data >/dev/null 2>/tmp/refused; then
        echo "serve started without Java"
        exit 1
    fi
    command=$(grep -o "apt-get install openjdk-[0-9]*-jre-headless" /tmp/refused) || {
        cat /tmp/refused
        exit 1
    }
    echo "without Java, serve says: $command"
    apt-get -qq update
    mkdir -p /usr/share/man/man1
    $command -qq -y --no-install-recommends >/dev/null

    $routelake serve --data-dir /data --remoting 127.0.0.1:19876 --http 127.0.0.1:18080 >/tmp/serve 2>&1 &
    serve=$!
    trap "kill $serve; wait $serve || true" EXIT
    until grep -q "routelake is ready" /tmp/serve; do
        kill -0 "$serve" || { cat /tmp/serve; exit 1; }
        sleep 1
    done
    grep "routelake is ready" /tmp/serve
    $routelake fleet -n 127.0.0.1:19876 --brokers 1 --topics 1 --duration-s 600 >/dev/null &
    fleet=$!
    tries=0
    until topic=$($routelake admin topicList -n 127.0.0.1:19876 | grep -v "^#" | tail -n 1) && [ -n "$topic" ] &&
        $routelake route "$topic" -n http://127.0.0.1:18080; do
        [ $((tries += 1)) -lt 60 ] || { cat /tmp/serve; echo "no route"; exit 1; }
        sleep 2
    done
    kill "$fleet"
    wait "$fleet" || true

    tries=0
    until sql=$($routelake sql "SELECT count(*) > 0 AS has_epochs FROM routeCommitTable" --data-dir /data) && echo "$sql" | grep -qi true; do
        [ $((tries += 1)) -lt 60 ] || { cat /tmp/serve; echo "no epoch in the tables: $sql"; exit 1; }
        sleep 2
    done
    echo "the tables have epochs"
'
