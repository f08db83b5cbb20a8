# Build for both architectures:
#   docker buildx build --platform linux/amd64,linux/arm64 -t sallyport:0.1.0 .
# To build from the same base each time, give its digest, which `docker buildx imagetools inspect node:26-bookworm-slim` says:
#   --build-arg NODE_IMAGE=node:26-bookworm-slim@sha256:...
ARG NODE_IMAGE=node:26-bookworm-slim
FROM ${NODE_IMAGE} AS build
WORKDIR /build
COPY package.json package-lock.json ./
RUN npm ci --workspaces=false --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json index.ts ./
COPY protocol/ protocol/
COPY server/ server/
COPY client/ client/
COPY router/ router/
COPY certs/ certs/
COPY tracing/ tracing/
COPY admin/ admin/
COPY cli/ cli/
COPY load-tests/ load-tests/
COPY LICENSE ./
COPY bin/ bin/
# A checkout may be readable only for its owner.
RUN node_modules/.bin/tsc -p tsconfig.build.json && chmod -R a+rX package.json LICENSE bin admin

FROM ${NODE_IMAGE} AS packages
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --workspaces=false --ignore-scripts --no-audit --no-fund

FROM ${NODE_IMAGE}
LABEL org.opencontainers.image.title="Sallyport"
LABEL org.opencontainers.image.description="A secure reverse-tunnel toolkit: server, client and router"
LABEL org.opencontainers.image.version="0.1.0"
LABEL org.opencontainers.image.licenses="Apache-2.0"
ENV NODE_ENV=production SALLYPORT_LOG_FORMAT=json SALLYPORT_HEALTH_LISTEN=127.0.0.1:8086
WORKDIR /app
COPY --from=packages /app/node_modules/ node_modules/
COPY --from=build /build/dist/ dist/
COPY --from=build /build/package.json /build/LICENSE ./
COPY --from=build /build/admin/web/public/ admin/web/public/
COPY --from=build /build/bin/ bin/
# Any other user will do, as OpenShift gives: nothing here is written to, and everybody may read it.
USER 65532:65532
# For engines that probe by themselves; Kubernetes has probes of its own. It takes the port of SALLYPORT_HEALTH_LISTEN.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["node", "-e", "fetch('http://localhost:' + process.env.SALLYPORT_HEALTH_LISTEN.split(':').pop() + '/livez').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
# While Node itself starts, not even a signal opens its debugger.
ENTRYPOINT ["node", "--disable-sigusr1", "/app/bin/sallyport.js"]
CMD ["--help"]
