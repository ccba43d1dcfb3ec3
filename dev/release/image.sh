#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds an image from the files of a release, starts it without a network, waits until it is ready, and stops it. Needs podman.
#   sh dev/release/image.sh DIST gateway
#   sh dev/release/image.sh DIST fold
# DIST: folder of ./routelake release. The image of the fold starts `serve`, so that a gateway reports the state of the fold.
set -eu

dist=$1
image=$2
case $image in
    gateway) command=gateway url='http://127.0.0.1:8080/readyz' ;;
    fold) command=serve url='http://127.0.0.1:8080/readyz?strict' ;;
    *) echo "no image $image" >&2 && exit 2 ;;
esac

podman build --format docker -f "deploy/$image.Containerfile" -t "routelake-$image" "$dist"
container=$(podman run -d --network none --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
    -e ROUTELAKE_INSECURE=true "routelake-$image" "$command")
trap 'podman logs --tail 20 "$container"; podman rm -f "$container" >/dev/null' EXIT

podman exec "$container" python -c '
import sys, time, urllib.error, urllib.request

last = time.monotonic() + 600
while True:
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
        break
    except OSError as error:
        if time.monotonic() > last:
            sys.exit(error.read().decode() if isinstance(error, urllib.error.HTTPError) else f"{sys.argv[1]}: {error}")
        time.sleep(1)
' "$url"

podman stop -t 30 "$container" >/dev/null
code=$(podman inspect --format '{{.State.ExitCode}}' "$container")
[ "$code" = 0 ] || { echo "after SIGTERM the container ended with exit code $code" && exit 1; }
