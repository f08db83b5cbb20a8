/** A client with an embedded route table: two services of the cluster under one host name. */
import { readFile } from 'node:fs/promises'
import { connect } from 'sallyport/client'
import { createRouter } from 'sallyport/router'

const { SERVER = 'wss://127.0.0.1:8443', TOKEN = 'token', CA = 'certs/ca.pem' } = process.env
const { API = 'http://127.0.0.1:3017', HOOKS = 'http://127.0.0.1:12000' } = process.env

const router = createRouter({
  routes: {
    routes: [
      {
        name: 'api',
        match: { path: '/api' },
        target: API,
        rewrite: { stripPrefix: '/api' },
        cors: { origins: ['https://ui.example.com'], credentials: true }, // on errors, and even while this client is offline
      },
      {
        name: 'webhooks',
        match: { path: '/webhooks', methods: ['POST'] },
        target: HOOKS,
        limits: { bodyBytes: 25 * 1024 * 1024 },
      },
    ],
  },
})

const tunnel = await connect({
  url: SERVER,
  token: () => readFile(TOKEN, 'utf8'),
  ca: await readFile(CA),
  target: router,
  onExchange: ({ method, path, status, durationMs }) =>
    console.log(`${method} ${path} ${status} in ${Math.round(durationMs)} ms`),
})
console.log(`connected as ${tunnel.stats().runtime}`)

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, async () => {
    await tunnel.close({ graceMs: 10_000 })
    await router.close()
  })
}
