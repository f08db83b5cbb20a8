/** A stand-in for an Argo Events event source that verifies GitHub's signature over the raw body. Its own process. */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

const MOST_BYTES = 1_048_576
const [port = '0', path = '/webhooks/demo/push/github', secretFile = ''] = process.argv.slice(2)
const secret = readFileSync(secretFile, 'utf8').trim()

const server = createServer((request, response) => {
  if (request.url === '/health') return answer(response, 200, 'OK')
  if (request.url !== path) return answer(response, 404, 'not found')
  if (request.method !== 'POST') return answer(response, 405, 'method not allowed')
  receive(request, response).catch(() => response.destroy())
})
server.listen(Number(port), '127.0.0.1', () => {
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`
  console.error(JSON.stringify({ msg: 'listening', name: 'event-source', address }))
})

async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request) {
    bytes += chunk.length
    if (bytes > MOST_BYTES) return answer(response, 400, 'request body too large')
    chunks.push(chunk)
  }
  const given = String(request.headers['x-hub-signature-256'] ?? '')
  if (!isSigned(Buffer.concat(chunks), given)) return answer(response, 400, 'signature does not fit')
  answer(response, 200, 'success')
}

function isSigned(body: Buffer, given: string): boolean {
  const expected = Buffer.from(`sha256=${createHmac('sha256', secret).update(body).digest('hex')}`)
  const actual = Buffer.from(given)
  return actual.length === expected.length && timingSafeEqual(actual, expected)
}

function answer(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'content-type': 'text/plain' })
  response.end(`${text}\n`)
}
