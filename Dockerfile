# docker build -t kvverify .                                              vLLM and LMCache for NVIDIA GPUs
# docker build -t kvverify --build-arg LMCACHE_VERSION=0.5.6 .            another locked release of LMCache
# docker build -t kvverify:cpu --target cpu .                             vLLM's CPU build, to try it and for CI
#
# Everything comes from requirements/*.lock, each file checked by its sha256. docs/image.md says how to build without a
# registry, behind a proxy with its own certificate authority, and on another base.

# The bases are multi-platform indexes of Docker's official images; the engines are locked for linux/amd64 and for these
# releases of CPython. CUDA's libraries come with the wheels, so that the GPU base holds none.
ARG GPU_BASE=python:3.12-slim-bookworm@sha256:782412e85d0f0984994c290652577d4018aff08145c85b262bb63dc0c7522254
ARG CPU_BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b


FROM scratch AS wheels
COPY wheel[s]/ /
COPY requirements/bootstrap.lock /.locks/


FROM ${GPU_BASE} AS gpu-engine
# tini reaps what an engine leaves behind; gcc and the C library's headers are Triton's, which compiles at run time.
# Debian keeps no old package versions, so that pinning them would break the build at the next security update.
# hadolint ignore=DL3008
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev tini \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log
ARG LMCACHE_VERSION=0.5.4
ARG OFFLINE=0
COPY requirements/bootstrap.lock requirements/gpu-lmcache-${LMCACHE_VERSION}.lock scripts/image/install-engine.sh \
    /opt/kvverify/
RUN --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    /opt/kvverify/install-engine.sh "/opt/kvverify/gpu-lmcache-${LMCACHE_VERSION}.lock"


FROM ${CPU_BASE} AS cpu-engine
# The engine's compiled part is linked against libnuma.
# hadolint ignore=DL3008
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    apt-get update \
    && apt-get install -y --no-install-recommends libnuma1 tini \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log
ARG OFFLINE=0
COPY requirements/bootstrap.lock requirements/cpu.lock scripts/image/install-engine.sh /opt/kvverify/
RUN --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    /opt/kvverify/install-engine.sh /opt/kvverify/cpu.lock


# From here on both targets are alike and small: a change in our code rebuilds nothing above.
FROM cpu-engine AS cpu
COPY scripts/image/install-kvverify.sh entrypoint/container.sh /opt/kvverify/
COPY fixtures/ /fixtures/
RUN --mount=type=bind,target=/source,rw /opt/kvverify/install-kvverify.sh /source
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kvverify (CPU)" \
    org.opencontainers.image.description="Checks that reusing cached KV gives the token IDs that recomputation gives; vLLM 0.28.0's CPU build" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
WORKDIR /work
USER 10001:10001
ENTRYPOINT ["tini", "-s", "--", "/opt/kvverify/container.sh"]
CMD ["--help"]


FROM gpu-engine AS gpu
COPY scripts/image/install-kvverify.sh entrypoint/container.sh /opt/kvverify/
COPY fixtures/ /fixtures/
RUN --mount=type=bind,target=/source,rw /opt/kvverify/install-kvverify.sh /source
# No compiler for FlashInfer's sampler is in the image, and greedy answers need none of it.
ENV VLLM_USE_FLASHINFER_SAMPLER=0 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
ARG LMCACHE_VERSION=0.5.4
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kvverify (GPU)" \
    org.opencontainers.image.description="Checks that reusing cached KV gives the token IDs that recomputation gives; vLLM 0.28.0 and LMCache ${LMCACHE_VERSION}" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
WORKDIR /work
USER 10001:10001
ENTRYPOINT ["tini", "-s", "--", "/opt/kvverify/container.sh"]
CMD ["--help"]
