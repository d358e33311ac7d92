# The whole program is one static binary; the image holds it, the certificate
# authorities that it needs for TLS, and nothing else. For an agent that is a
# program (worker --exec), copy /aeemesh into an image that can run the program.
FROM --platform=$BUILDPLATFORM golang:1.26.8-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH
ARG VERSION= REVISION=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/cache \
    GOCACHE=/cache CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOFLAGS=-mod=readonly \
    go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags "-s -w -X main.release=$VERSION -X main.revision=$REVISION" -o /out/aeemesh ./cmd/aeemesh && \
    mkdir /out/data

FROM scratch
ARG VERSION= REVISION=
LABEL org.opencontainers.image.title="aeemesh" \
      org.opencontainers.image.description="A mesh of AI agents on any NATS server" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/aeemesh /aeemesh
# Where "aeemesh up --store /data" may write; mount a volume on it.
COPY --from=build --chown=65532:65532 /out/data /data
# "aeemesh demo" makes its scratch directory here.
COPY --from=build --chown=65532:65532 /out/data /tmp
# There is no /etc/passwd to look a home directory up in; keys are in /data/.config.
ENV HOME=/data
# Health checks: set AEEMESH_HEALTH_LISTEN, and run "/aeemesh healthcheck" (compose.yaml).
# nobody's user: it has no name here, for there is no /etc/passwd
USER 65532:65532
WORKDIR /data
ENTRYPOINT ["/aeemesh"]
CMD ["help"]
