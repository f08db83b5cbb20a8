/** A platform that calls into its customers' runtimes with `fetch` or an undici Dispatcher, without a host and port. */
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { createServer } from 'sallyport/server'
import { request } from 'undici'

const { CERT = 'certs/server.pem', KEY = 'certs/server-key.pem', JWKS = 'keys/jwks.json' } = process.env
const { PORT = '8080', CONTROL_PORT = '8443', DOMAIN = 'tunnels.localhost' } = process.env

const tunnels = await createServer({
  control: { port: Number(CONTROL_PORT), tls: { cert: { file: CERT }, key: { file: KEY } } },
  domains: [DOMAIN],
  auth: { jwks: { file: JWKS } },
})

/** The platform's own API: `GET /runtimes/<name>` asks the runtime how it is. */
async function answer(path: string, caller: string): Promise<{ status: number; body: object }> {
  const name = /^\/runtimes\/([a-z0-9-]+)$/.exec(path)?.[1]
  if (name === undefined) return { status: 404, body: { error: 'no such page' } }
  // Strangers choose the runtime, so each address may ask for a limited number of runtimes that nobody serves.
  const options = { caller }
  const health = await tunnels.fetch(name, `https://${name}.${DOMAIN}/healthz`, options)
  // A body that is neither read nor cancelled keeps its exchange open.
  await health.body?.cancel()
  // The same with undici. Any of its clients works, with Node streams.
  const version = await request('http://any/version', { dispatcher: tunnels.dispatcher(name, options) })
  return { status: 200, body: { name, health: health.status, version: await version.body.text() } }
}

const tls = { cert: await readFile(CERT), key: await readFile(KEY) }
const api = createHttpsServer(tls, (incoming, outgoing) => {
  const caller = incoming.socket.remoteAddress
  if (caller === undefined) return // it has gone
  answer(incoming.url ?? '', caller).then(
    ({ status, body }) => outgoing.writeHead(status).end(JSON.stringify(body)),
    () => outgoing.writeHead(502).end(), // the answer of the runtime was cut off
  )
})

tunnels.attach(api) // requests for <runtime>.tunnels.localhost go into the tunnel, and all others to the platform
api.listen(Number(PORT), '127.0.0.1')
await once(api, 'listening')
console.log(`platform: https://127.0.0.1:${(api.address() as AddressInfo).port}`)
console.log(`clients: wss://127.0.0.1:${tunnels.controlAddress?.port}`)

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, async () => {
    api.close()
    await tunnels.close({ graceMs: 10_000 })
  })
}
