/** A tunnel server inside a program. Callers arrive on one port, and clients dial in on another. */
import { createServer } from 'sallyport/server'

const { CERT = 'certs/server.pem', KEY = 'certs/server-key.pem', JWKS = 'keys/jwks.json' } = process.env
const { PUBLIC_PORT = '8080', CONTROL_PORT = '8443', DOMAIN = 'tunnels.localhost' } = process.env

const tls = { cert: { file: CERT }, key: { file: KEY } } // read again when they change

await using server = await createServer({
  public: { port: Number(PUBLIC_PORT), tls },
  control: { port: Number(CONTROL_PORT), tls },
  domains: [DOMAIN], // a runtime is reached as <runtime>.tunnels.localhost
  auth: { jwks: { file: JWKS } }, // keys of those who may connect; required
  onExchange: ({ runtime, method, path, status }) => console.log(`${runtime}: ${method} ${path} ${status}`),
})

server.on('ready', ({ runtime, replica }) => console.log(`${runtime} is connected to ${replica}`))
server.on('refused', ({ reason, address, detail }) => console.error(`refused ${address}: ${reason} (${detail})`))

console.log(`callers: https://127.0.0.1:${server.publicAddress?.port}`)
console.log(`clients: wss://127.0.0.1:${server.controlAddress?.port}`)
await new Promise(resolve => process.once('SIGINT', resolve).once('SIGTERM', resolve))
