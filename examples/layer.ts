/** A layer between the edge and the sessions. It answers with a page while a runtime is under maintenance, and counts all other traffic. */
import { discarding, type Layer, PassThrough } from 'sallyport/protocol'
import { createServer } from 'sallyport/server'

const { CERT = 'certs/server.pem', KEY = 'certs/server-key.pem', JWKS = 'keys/jwks.json' } = process.env
const { PUBLIC_PORT = '8080', CONTROL_PORT = '8443', DOMAIN = 'tunnels.localhost' } = process.env

const maintenance: Layer = next => (request, response) => {
  if (!request.path.startsWith('/admin')) return next(request, response)
  const body = Buffer.from(`${request.runtime} is under maintenance\n`)
  response.responseHead({ status: 503, headers: ['content-type', 'text/plain'], bodyBytes: body.length })
  response.responseData(body)
  response.responseEnd([])
  return discarding(response) // the request body is not wanted
}

class Tallied extends PassThrough {
  #bytes = 0
  override responseData(chunk: Uint8Array): void {
    this.#bytes += chunk.length
    super.responseData(chunk)
  }
  override over(): void {
    console.log(`${this.status}: ${this.#bytes} bytes`)
  }
}
const tally: Layer = next => (request, response) => new Tallied(response).pass(next, request)

const tls = { cert: { file: CERT }, key: { file: KEY } }
const server = await createServer({
  public: { port: Number(PUBLIC_PORT), tls },
  control: { port: Number(CONTROL_PORT), tls },
  domains: [DOMAIN],
  auth: { jwks: { file: JWKS } },
  layers: [maintenance, tally],
})
console.log(`callers: https://127.0.0.1:${server.publicAddress?.port}`)
console.log(`clients: wss://127.0.0.1:${server.controlAddress?.port}`)
process.once('SIGTERM', () => server.close({ graceMs: 0 }))
