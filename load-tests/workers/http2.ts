/** Closed loop over HTTP/2: `connections` requests at a time, in sessions of at most 50 streams. */
import { readFileSync } from 'node:fs'
import { type ClientHttp2Session, connect } from 'node:http2'
import { type Load, type LoadResult, Tally } from '../lib/load.ts'
import { serveTasks } from '../lib/worker.ts'

const STREAMS_PER_SESSION = 50

serveTasks<Load, LoadResult>(async load => {
  const url = new URL(load.url)
  const { host = url.host, ...fields } = load.headers
  const count = Math.ceil(load.connections / STREAMS_PER_SESSION)
  const sessions = await Promise.all(Array.from({ length: count }, () => open(load, host)))
  const tally = new Tally()
  const endsAt = performance.now() + load.durationMs
  const request = {
    ':method': load.method ?? 'GET',
    ':path': url.pathname + url.search,
    ':authority': host,
    ...fields,
  }
  const loop = async (session: ClientHttp2Session) => {
    while (performance.now() < endsAt && !session.closed && !tally.failed(load.bailout))
      await exchange(session, request, load, tally)
  }
  await Promise.all(Array.from({ length: load.connections }, (_, index) => loop(sessions[index % count]!)))
  for (const session of sessions) session.destroy()
  return tally.result()
})

function open(load: Load, host: string): Promise<ClientHttp2Session> {
  return new Promise((resolve, reject) => {
    const session = connect(new URL(load.url).origin, {
      servername: host.replace(/:\d+$/, ''),
      ...(load.ca === undefined ? {} : { ca: readFileSync(load.ca) }),
    })
    session.once('connect', () => resolve(session))
    session.on('error', reject)
  })
}

function exchange(
  session: ClientHttp2Session,
  request: Record<string, string>,
  load: Load,
  tally: Tally,
): Promise<void> {
  return new Promise(resolve => {
    const startedAt = performance.now()
    const stream = session.request(request, { endStream: load.body === undefined })
    const chunks: Buffer[] = []
    let status = 'broken'
    let hasEnded = false
    stream.on('response', headers => {
      status = String(headers[':status'])
    })
    stream.on('data', (chunk: Buffer) => chunks.push(chunk))
    stream.on('end', () => {
      hasEnded = true
    })
    stream.on('error', () => {})
    stream.on('close', () => {
      const isWhole = hasEnded && (load.expectBody === undefined || Buffer.concat(chunks).equals(expected(load)))
      tally.add(status, performance.now() - startedAt, isWhole && status === '200')
      resolve()
    })
    if (load.body !== undefined) stream.end(load.body)
  })
}

let memory: { text: string; bytes: Buffer } | undefined

function expected({ expectBody = '' }: Load): Buffer {
  if (memory?.text !== expectBody) memory = { text: expectBody, bytes: Buffer.from(expectBody) }
  return memory.bytes
}
