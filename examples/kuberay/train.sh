#!/usr/bin/env bash
# The entry point of rayjob.yaml: one run on the cluster that KubeRay started for it. The address is
# known only inside the head pod, so it cannot stand in the resource.
set -euo pipefail
cd /refblend
exec refblend train --config params/ppo.yaml --config params/scale/gpu.yaml \
    "ray.address=$RAY_ADDRESS" "$@"
