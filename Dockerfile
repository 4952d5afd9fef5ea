# refblend on a CPU, everything from requirements/cpu.lock:
#   docker build -t refblend .
#   mkdir -p out && chmod a+w out
#   docker run --rm --shm-size=2g -v "$PWD/out:/refblend/results" refblend make study TARGET=m1 SCALE=smoke
# For CUDA: --build-arg LOCK=requirements/gpu.lock; its wheels bring CUDA's libraries (not tried yet).
ARG BASE=python:3.11-slim-bookworm
# hadolint ignore=DL3006
FROM ${BASE}
ARG LOCK=requirements/cpu.lock
SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# vLLM needs libnuma, PyTorch's compiler g++. Their exact versions do not matter to the numbers.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ git libnuma1 make procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 refblend \
    && install -d -o refblend /refblend
USER 1000
WORKDIR /refblend

# The environment first: it changes less often than the sources.
COPY --chown=refblend pyproject.toml README.md Makefile ./
COPY --chown=refblend requirements requirements
COPY --chown=refblend scripts scripts
COPY --chown=refblend src src
RUN make env LOCK="${LOCK}" && rm -rf ~/.cache
COPY --chown=refblend . .

ENV PATH="/refblend/.venv/bin:${PATH}" OMP_WAIT_POLICY=PASSIVE
CMD ["refblend", "--help"]
