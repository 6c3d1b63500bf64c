#!/bin/sh
# Makes kseg/analysis/echarts.js.zst anew. Needs npm, zstd and a network.
set -eu
cd "$(dirname "$0")"
npm install --no-save --silent --prefix ../../build/echarts echarts@6.1.0 esbuild@0.28.2
cp entry.js ../../build/echarts/entry.js
(cd ../../build/echarts && npx esbuild entry.js --bundle --minify --legal-comments=none --outfile=echarts.js)
zstd --ultra -22 -f ../../build/echarts/echarts.js -o ../../kseg/analysis/echarts.js.zst
