/**
 * One bulk transfer on a bare socket, every byte compared. Argument: {url, headers, bytes, direction, fill, ca?} as JSON;
 * answer on stdout: {bytes, wrong, durationMs}. An upload's answer must be the number of bytes that arrived.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'

export interface BulkTask {
  url: string
  headers: Record<string, string>
  bytes: number
  direction: 'down' | 'up'
  /** File with the certificate authority, for https. */
  ca?: string
}

export interface BulkResult {
  bytes: number
  wrong: number
  durationMs: number
}

const FILL = Buffer.alloc(256 * 1024, 'y')

async function open(url: URL, task: BulkTask) {
  const host = task.headers.host ?? url.host
  if (url.protocol === 'http:') {
    const socket = connect(Number(url.port), url.hostname)
    await once(socket, 'connect')
    return socket
  }
  const ca = task.ca === undefined ? undefined : readFileSync(task.ca)
  const socket = connectTls({
    host: url.hostname,
    port: Number(url.port),
    servername: host.split(':')[0]!,
    ...(ca === undefined ? {} : { ca }),
  })
  await once(socket, 'secureConnect')
  return socket
}

async function run(task: BulkTask): Promise<BulkResult> {
  const url = new URL(task.url)
  const socket = await open(url, task)
  const startedAt = performance.now()
  const head = [
    `${task.direction === 'down' ? 'GET' : 'PUT'} ${url.pathname} HTTP/1.1`,
    ...Object.entries({ host: url.host, ...task.headers }).map(([name, value]) => `${name}: ${value}`),
    ...(task.direction === 'up' ? [`content-length: ${task.bytes}`] : []),
    'connection: close',
  ]
  socket.write(`${head.join('\r\n')}\r\n\r\n`)
  if (task.direction === 'up') {
    for (let sent = 0; sent < task.bytes; ) {
      const chunk = FILL.subarray(0, Math.min(FILL.length, task.bytes - sent))
      sent += chunk.length
      if (!socket.write(chunk)) await once(socket, 'drain')
    }
  }
  let answer = Buffer.alloc(0)
  let inBody = false
  let body = 0
  let wrong = 0
  let count = ''
  socket.on('data', (chunk: Buffer) => {
    let rest = chunk
    if (!inBody) {
      answer = Buffer.concat([answer, chunk])
      const end = answer.indexOf('\r\n\r\n')
      if (end < 0) return
      inBody = true
      if (!/^HTTP\/1\.1 2/.test(answer.toString('latin1', 0, 12))) wrong++
      rest = answer.subarray(end + 4)
    }
    body += rest.length
    if (task.direction === 'up') {
      count += rest.toString('latin1')
      return
    }
    for (let at = 0; at < rest.length; at += FILL.length) {
      const part = rest.subarray(at, at + FILL.length)
      if (!part.equals(FILL.subarray(0, part.length))) wrong++
    }
  })
  await once(socket, 'close')
  if (task.direction === 'down' ? body !== task.bytes : !count.includes(String(task.bytes))) wrong++
  if (!inBody) wrong++
  return { bytes: task.bytes, wrong, durationMs: performance.now() - startedAt }
}

process.stdout.write(JSON.stringify(await run(JSON.parse(process.argv[2]!) as BulkTask)))
