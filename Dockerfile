# Build for both architectures:
#   docker buildx build --platform linux/amd64,linux/arm64 -t sallyport:0.1.0 .
FROM node:26-bookworm-slim AS build
WORKDIR /build
COPY package.json package-lock.json ./
RUN npm ci --workspaces=false --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json index.ts ./
COPY protocol/ protocol/
COPY server/ server/
COPY client/ client/
COPY router/ router/
COPY certs/ certs/
COPY admin/ admin/
COPY cli/ cli/
COPY load-tests/ load-tests/
RUN node_modules/.bin/tsc -p tsconfig.build.json

FROM node:26-bookworm-slim AS packages
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --workspaces=false --ignore-scripts --no-audit --no-fund

FROM node:26-bookworm-slim
ENV NODE_ENV=production SALLYPORT_LOG_FORMAT=json
WORKDIR /app
COPY --from=packages /app/node_modules/ node_modules/
COPY --from=build /build/dist/ dist/
COPY package.json LICENSE ./
COPY admin/web/public/ admin/web/public/
COPY bin/ bin/
USER 65532:65532
ENTRYPOINT ["node", "/app/bin/sallyport.js"]
CMD ["--help"]
