# The image of every service of Muster. It takes no BuildKit; with or without it, dependencies are compiled once and then
# come from a layer.
#
#   docker build -t muster .
#   docker build -t muster --build-arg BUILD_IMAGE=.. --build-arg RUNTIME_IMAGE=.. .
#
# Both images have to be of the same distribution, for the program is linked to its C library. deploy/compose/image makes
# the same image around a program that is there already.
ARG BUILD_IMAGE=rust:1.95.0-bookworm
ARG RUNTIME_IMAGE=debian:bookworm-slim

# Manifests, and of each source file only that it is there: what the dependencies follow from.
FROM ${BUILD_IMAGE} AS manifests
WORKDIR /whole
COPY . .
RUN mkdir /src && find . \( -name Cargo.toml -o -name Cargo.lock -o -name '*.rs' \) -print0 | tar --create --null --files-from - | tar --extract --directory /src \
    && find /src -name '*.rs' -exec truncate -s 0 {} + \
    && find /src \( -name main.rs -o -path '*/bin/*.rs' -o -path '*/examples/*.rs' \) -exec sh -c 'for file; do echo "fn main() { }" > "$file"; done' sh {} +

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY --from=manifests /src .
RUN cargo build --release --locked -p muster
COPY . .
# What is compiled is newer than files that were checked out earlier.
RUN find . -name '*.rs' -exec touch {} + && cargo build --release --locked -p muster

FROM ${RUNTIME_IMAGE}
COPY deploy/compose/setup deploy/compose/auth deploy/compose/rep /usr/local/lib/muster/
RUN /usr/local/lib/muster/setup
COPY --from=build /src/target/release/muster /usr/local/bin/muster
USER 10001:10001
ENTRYPOINT ["muster"]
