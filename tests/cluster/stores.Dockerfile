# What tests keep tables, workspaces and a catalog in: an S3-compatible server and PostgreSQL. The context is the
# directory that `scripts/object-store.sh --gateway` prints:
#   docker build -f tests/cluster/stores.Dockerfile -t localhost/backfill-stores:dev "$(scripts/object-store.sh --gateway)"
# BASE_IMAGE: Debian 12 or what is made of it.
ARG BASE_IMAGE=debian:bookworm-slim
FROM ${BASE_IMAGE}
RUN apt-get update -q \
 && apt-get install -y -q --no-install-recommends postgresql-15 \
 && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/15
COPY versitygw /usr/local/bin/
ENV PATH=/usr/lib/postgresql/15/bin:$PATH
USER postgres
