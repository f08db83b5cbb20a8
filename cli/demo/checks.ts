import { createHash, createHmac, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { ask, askHttp2, authority, dialWebSocket, type EntryPoint, type HttpAnswer, open } from './dial.ts'
import { UI_ORIGIN, WEBHOOK_PATH } from './files.ts'
import { patternChunks, patternDigest } from './pattern.ts'

/** What a check needs. */
interface CheckContext {
  readonly entry: EntryPoint
  /** The secret that GitHub and the event source share. */
  readonly secret: string
  readonly signal: AbortSignal
}

/** Tries one kind of traffic. Returns a few words on what it saw, and throws if that was wrong. */
type Check = (context: CheckContext) => Promise<string>

const LARGE_BYTES = 16 * 1024 * 1024
const KEPT = 5
const API = '/app-proxy/api'

export const CHECKS: Record<string, Check> = {
  'GET, with the caller known': get,
  'GET over HTTP/2': getHttp2,
  'POST, GraphQL': graphql,
  'WebSocket echo': webSocket,
  'event stream, by cause': eventStream,
  'large download': download,
  'large upload': upload,
  'webhook, signed as GitHub does': webhook,
  'webhook, forged': forgedWebhook,
  'error with CORS': errorWithCors,
}

/** Additional checks, for an entry point whose server has an inbox. */
export const KEPT_CHECKS: Record<string, Check> = {
  'webhooks, their client away': keptWebhooks,
}

async function get({ entry, signal }: CheckContext): Promise<string> {
  const forged = entry.trustsCaller ? {} : { 'x-forwarded-host': 'forged.example', 'x-forwarded-proto': 'http' }
  const seen = json(await ask(entry, `${API}/whoami`, { headers: forged, signal }), 200)
  expect(seen.host === authority(entry), `the host ${seen.host} arrived`)
  expect(seen.forwardedProto === 'https', `the scheme ${seen.forwardedProto} arrived`)
  expect(seen.forwardedHost === authority(entry), `the outer host ${seen.forwardedHost} arrived`)
  expect(seen.forwardedFor === '127.0.0.1', `the caller ${seen.forwardedFor} arrived`)
  return `200, request ${String(seen.requestId).slice(0, 8)}`
}

async function getHttp2({ entry }: CheckContext): Promise<string> {
  const seen = json(await askHttp2(entry, `${API}/whoami`), 200)
  expect(seen.service === 'app-proxy', 'another service answered')
  return '200'
}

async function graphql({ entry, signal }: CheckContext): Promise<string> {
  const query = 'query ($name: String!) { runtime(name: $name) { name queryBytes } }'
  const body = JSON.stringify({ query, variables: { name: 'demo' } })
  const headers = { 'content-type': 'application/json' }
  const seen = json(await ask(entry, `${API}/graphql`, { method: 'POST', headers, body, signal }), 200)
  expect(JSON.stringify(seen.data) === `{"runtime":{"name":"demo","queryBytes":${query.length}}}`, 'wrong data')
  return '200'
}

async function webSocket({ entry, signal }: CheckContext): Promise<string> {
  const ws = await dialWebSocket(entry, `${API}/ws`, signal)
  const started = performance.now()
  const messages = ['hello', Buffer.alloc(300_000, 7)]
  for (const message of messages) {
    const [echo] = await sendAndTake(ws, message)
    expect(Buffer.from(message).equals(echo as Buffer), 'the echo differs')
  }
  const tookMs = performance.now() - started
  ws.close(1000, 'done')
  const [code] = await once(ws, 'close')
  expect(code === 1000, `closed with ${code}`)
  return `2 messages in ${tookMs.toFixed(0)} ms, closed with ${code}`
}

function sendAndTake(ws: { send(data: string | Buffer): void }, message: string | Buffer): Promise<unknown[]> {
  const echo = once(ws as never, 'message')
  ws.send(message)
  return echo
}

/** The stand-in sends each event only on request, after the previous one has arrived here. */
async function eventStream({ entry, signal }: CheckContext): Promise<string> {
  const path = `${API}/events/by-cause?key=${randomUUID()}`
  const response = await open(entry, path, { headers: { accept: 'text/event-stream' }, signal })
  expect(response.statusCode === 200, `status ${response.statusCode}`)
  let text = ''
  let count = 1
  for await (const chunk of response) {
    text += chunk
    if (!text.endsWith(`data: ${count}\n\n`)) continue
    if (count === 5) break
    count++
    await ask(entry, path, { method: 'POST', signal })
  }
  expect(count === 5, `only ${count} events arrived`)
  return '5 events, each after the one before'
}

async function download({ entry, signal }: CheckContext): Promise<string> {
  const started = performance.now()
  const response = await open(entry, `${API}/download?bytes=${LARGE_BYTES}`, { signal })
  const hash = createHash('sha256')
  let bytes = 0
  for await (const chunk of response) {
    hash.update(chunk)
    bytes += chunk.length
  }
  expect(bytes === LARGE_BYTES, `${bytes} bytes arrived`)
  expect(hash.digest('hex') === patternDigest(LARGE_BYTES), 'the checksum differs')
  return throughput(started)
}

async function upload({ entry, signal }: CheckContext): Promise<string> {
  const started = performance.now()
  const headers = { 'content-length': String(LARGE_BYTES) }
  const body = patternChunks(LARGE_BYTES)
  const seen = json(await ask(entry, `${API}/upload`, { method: 'POST', headers, body, signal }), 200)
  expect(seen.bytes === LARGE_BYTES, `${seen.bytes} bytes arrived`)
  expect(seen.sha256 === patternDigest(LARGE_BYTES), 'the checksum differs')
  return throughput(started)
}

async function webhook(context: CheckContext): Promise<string> {
  const answer = await sendWebhook(context, context.secret)
  expect(answer.status === 200, `status ${answer.status}: ${answer.body}`)
  return '200, the signature held'
}

async function forgedWebhook(context: CheckContext): Promise<string> {
  const answer = await sendWebhook(context, 'a guess')
  if (context.entry.keeper === undefined) {
    expect(answer.status === 400, `status ${answer.status}: ${answer.body}`)
    return "400, the event source's own answer"
  }
  const problem = json(answer, 401)
  expect(problem.code === 'webhook-signature', `code ${problem.code}`)
  return `401 ${problem.code}, which the server knows`
}

function sendWebhook({ entry, signal }: CheckContext, secret: string, id: string = randomUUID()): Promise<HttpAnswer> {
  const body = webhookBody(id)
  const headers = {
    'content-type': 'application/json',
    'x-github-event': 'push',
    'x-github-delivery': id,
    'x-hub-signature-256': gitHubSignature(secret, body),
  }
  return ask(entry, WEBHOOK_PATH, { method: 'POST', headers, body, signal })
}

function webhookBody(id: string): string {
  return JSON.stringify({ ref: 'refs/heads/main', id, note: 'bytes \u00e9 \ud83d\ude80 as they are' }, null, 3)
}

/** Five webhooks arrive while the client is offline. The event source accepts only those whose signature is valid. */
async function keptWebhooks(context: CheckContext): Promise<string> {
  const { secret, entry } = context
  const keeper = entry.keeper!
  const ids = Array.from({ length: KEPT }, () => randomUUID())
  await keeper.stopClient()
  for (const id of ids) {
    const answer = await sendWebhook(context, secret, id)
    expect(answer.status === 202, `status ${answer.status}: ${answer.body}`)
    expect(answer.headers['sallyport-inbox-id'] !== undefined, 'no sallyport-inbox-id')
  }
  await keeper.startClient()
  const recorded = await keeper.recorded(ids)
  expect(recorded.length === KEPT, `${recorded.length} arrived`)
  expect(
    recorded.every(({ id }, i) => id === ids[i]),
    'they arrived in another order',
  )
  const digests = ids.map(id => createHash('sha256').update(webhookBody(id)).digest('hex'))
  expect(
    recorded.every(({ sha256 }, i) => sha256 === digests[i]),
    'other bytes arrived',
  )
  return `${KEPT} answered 202, and arrived in order, byte for byte`
}

/** The value of `X-Hub-Signature-256`. */
export function gitHubSignature(secret: string, body: string): string {
  return `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`
}

async function errorWithCors({ entry, signal }: CheckContext): Promise<string> {
  const answer = await ask(entry, '/nobody-there', { headers: { origin: UI_ORIGIN }, signal })
  const problem = json(answer, 502)
  expect(problem.code === 'upstream-refused', `code ${problem.code}`)
  expect(answer.headers['access-control-allow-origin'] === UI_ORIGIN, 'no CORS header')
  return `502 ${problem.code}`
}

function json(answer: HttpAnswer, status: number): Record<string, unknown> {
  expect(answer.status === status, `status ${answer.status}: ${answer.body.subarray(0, 200)}`)
  return JSON.parse(answer.body.toString('utf8'))
}

function throughput(started: number): string {
  const seconds = (performance.now() - started) / 1000
  return `${LARGE_BYTES / 1024 / 1024} MiB, checksum equal, ${(LARGE_BYTES / 1e6 / seconds).toFixed(0)} MB/s`
}

function expect(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Error(otherwise)
}
