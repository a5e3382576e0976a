#!/bin/sh
# Debian packages that tests use beside Python: kcat is one of the real clients, strace injects faults, etcd keeps the
# metadata of clusters, ip makes namespaces to cut lines in, faketime turns clocks, PostgreSQL is what pipelines write to,
# promtool and amtool check the rules in deploy/, chromium opens the console.
# Without root or apt, or without a network, the tests that need them are skipped and say so.
set -u
packages=""
command -v kcat >/dev/null 2>&1 || packages="$packages kcat"
command -v strace >/dev/null 2>&1 || packages="$packages strace"
command -v etcd >/dev/null 2>&1 || packages="$packages etcd-server"
command -v ip >/dev/null 2>&1 || packages="$packages iproute2"
command -v faketime >/dev/null 2>&1 || packages="$packages faketime"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || packages="$packages postgresql"
command -v promtool >/dev/null 2>&1 || packages="$packages prometheus"
command -v amtool >/dev/null 2>&1 || packages="$packages prometheus-alertmanager"
command -v chromium >/dev/null 2>&1 || packages="$packages chromium"
[ -n "$packages" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed (needs root and apt):$packages"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# Several of them bring a service; tests start their own, and nobody asked for one on this machine.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
# shellcheck disable=SC2086
(apt-get update -q && apt-get install -y -q --no-install-recommends $packages) >/dev/null 2>&1 ||
    echo "could not be installed:$packages"
