# Image of every service of Muster. Works with and without BuildKit. Dependencies are compiled once, in a cached layer.
#
#   docker build -t muster .
#   docker build -t muster --build-arg BUILD_IMAGE=.. --build-arg RUNTIME_IMAGE=.. .
#
# Both images must be of the same distribution, because the program is linked to its C library. deploy/compose/image
# builds the same image from a compiled program.
ARG BUILD_IMAGE=rust:1.95.0-bookworm
ARG RUNTIME_IMAGE=debian:bookworm-slim

# Manifests and empty source files, which are enough to compile the dependencies.
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
# The compiled files of the layer above may be newer than the sources.
RUN find . -name '*.rs' -exec touch {} + && cargo build --release --locked -p muster

FROM ${RUNTIME_IMAGE}
COPY deploy/compose/setup deploy/compose/auth deploy/compose/rep /usr/local/lib/muster/
RUN /usr/local/lib/muster/setup
COPY --from=build /src/target/release/muster /usr/local/bin/muster
USER 10001:10001
ENTRYPOINT ["muster"]
