#!/bin/sh
# Generates messages and stubs from protos/ into ./generated: generate.sh [PYTHON], one that has grpcio-tools.
set -eu
cd "$(dirname "$0")"
protos=$(cd ../../../protos && pwd)
mkdir -p generated
"${1:-python3}" -m grpc_tools.protoc -I "$protos" --python_out=generated --grpc_python_out=generated \
  $(find "$protos/mycelia" -name '*.proto')
