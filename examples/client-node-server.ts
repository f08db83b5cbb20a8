/** A fastify application behind the tunnel. It does not listen on any port, so there is none that anybody could scan. */
import { readFile } from 'node:fs/promises'
import { fastify } from 'fastify'
import { connect } from 'sallyport/client'

const { SERVER = 'wss://127.0.0.1:8443', TOKEN = 'token', CA = 'certs/ca.pem' } = process.env

const app = fastify({ trustProxy: 'loopback' }) // request.ip is the caller's address
app.get('/', async request => ({ hello: 'fastify', caller: request.ip, host: request.host }))
app.post('/items', async (request, reply) => reply.code(201).send({ stored: request.body }))
await app.ready()

const tunnel = await connect({
  url: SERVER,
  token: () => readFile(TOKEN, 'utf8'),
  ca: await readFile(CA),
  target: app.server,
})
console.log(`connected as ${tunnel.stats().runtime}`)

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, async () => {
    await tunnel.close({ graceMs: 10_000 })
    await app.close()
  })
}
