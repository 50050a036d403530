# docker build -t rlfactory .                             # for a CPU
# docker build -t rlfactory --build-arg DEVICE=cuda .     # for NVIDIA GPUs: docker run --gpus all ...
# docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" rlfactory check
#
# TORCH_INDEX: a package index of PyTorch's builds for the device. Without one, torch comes from the
# default index; on Linux that build contains CUDA, runs on a CPU too, and takes some gigabytes more.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim
ARG DEVICE=cpu
ARG TORCH_INDEX=
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

WORKDIR /build
COPY constraints.txt .
# a layer of its own, since it is large and seldom changes
RUN pip install -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY conf conf
COPY sweeps sweeps
COPY src src
RUN case "$DEVICE" in cpu) extras=serve;; cuda) extras=serve,gpu;; \
      *) echo "DEVICE is $DEVICE; allowed are cpu and cuda" >&2; exit 2;; esac; \
    pip install -c constraints.txt ".[$extras]"

# runs and caches belong to whoever is named by --user
WORKDIR /work
ENV HOME=/work
RUN chmod 777 .
USER 1000:1000
ENTRYPOINT ["rlfactory"]
