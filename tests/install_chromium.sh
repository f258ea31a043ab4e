#!/bin/sh
# Installs Debian's Chromium for the browser tests, once; elsewhere those tests skip and say why.
set -eu
command -v chromium >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends chromium >/dev/null 2>&1 ||
        { apt-get update >/dev/null 2>&1 && apt-get install -y --no-install-recommends chromium >/dev/null 2>&1; } ||
        echo "Chromium could not be installed; browser tests will be skipped" >&2
else
    echo "Chromium is not installed; browser tests will be skipped (apt-get install chromium)" >&2
fi
