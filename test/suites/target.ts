/** What the suites attack: a real pair, reached by an address, since such programs cannot choose their Host. */
import { type ClientOptions, connect } from '../../client/index.ts'
import { createServer, type ServerOptions } from '../../server/index.ts'
import type { Place } from '../support/caller.ts'
import { DOMAIN, makeSecrets, type Secrets } from '../support/secrets.ts'

/** The runtime `127` of the domain `0.0.1`, so that the host `127.0.0.1` has one. */
const RUNTIME = '127'
const ADDRESSES = '0.0.1'

export interface SuiteTarget {
  readonly secrets: Secrets
  readonly edgePort: number
  readonly controlPort: number
  /** The same by a name, for our own callers. */
  readonly place: Place
  stop(): Promise<void>
}

/** Fields that a careful service sends, so that a scanner judges the edge and not the stand-in. */
const FIELDS = {
  'content-type': 'text/plain',
  'strict-transport-security': 'max-age=63072000',
  'content-security-policy': "default-src 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}

/** TLS at both ends, unless `options` say otherwise. */
export async function startTarget(
  options: (tls: Secrets['server']) => Partial<ServerOptions> = () => ({}),
  target: ClientOptions['target'] = answerWithBytes,
): Promise<SuiteTarget> {
  const secrets = await makeSecrets()
  const server = await createServer({
    public: { port: 0, tls: secrets.server },
    control: { port: 0, tls: secrets.server },
    domains: [ADDRESSES, DOMAIN],
    auth: { jwks: secrets.jwks },
    ...options(secrets.server),
  })
  const tunnel = await connect({
    url: `wss://127.0.0.1:${server.controlAddress!.port}`,
    token: () => secrets.token(RUNTIME),
    ca: secrets.ca,
    proxy: '',
    connectTimeoutMs: 100_000,
    // A thousand stopped readers hold more than the buffers of two sessions.
    connections: 8,
    target,
  })
  const stop = async () => {
    await tunnel.close({ graceMs: 0 })
    await server.close({ graceMs: 0 })
  }
  const edgePort = server.publicAddress!.port
  const place = { port: edgePort, authority: `${RUNTIME}.${DOMAIN}:${edgePort}`, ca: secrets.ca }
  return { secrets, edgePort, controlPort: server.controlAddress!.port, place, stop }
}

/** Every request is answered with as many bytes as its path says, 1,000 without a number. */
async function answerWithBytes(request: Request): Promise<Response> {
  // What is sent is read, slowly or not, before it is answered.
  for await (const _ of request.body ?? []);
  const bytes = Number(/\d+$/.exec(new URL(request.url).pathname)?.[0] ?? 1000)
  return new Response(body(bytes), { headers: FIELDS })
}

const CHUNK = Buffer.alloc(64 * 1024, 'x')

/** This many bytes, created as they are read. */
function body(bytes: number): ReadableStream<Uint8Array> {
  let left = bytes
  return new ReadableStream({
    pull(controller) {
      const size = Math.min(left, CHUNK.length)
      left -= size
      if (size > 0) controller.enqueue(CHUNK.subarray(0, size))
      if (left === 0) controller.close()
    },
  })
}
