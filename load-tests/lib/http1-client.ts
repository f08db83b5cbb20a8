/** The smallest HTTP/1.1 client that can tell a complete answer from a broken one. */
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { addressOf } from '../../protocol/base/host-port.ts'
import type { Place } from './load.ts'

export interface Answer {
  readonly status: number
  readonly body: Buffer
}

const authorities = new Map<string, Buffer>()

/** A TCP or TLS socket to the place. Its errors are reported with 'close'. */
export function dial(place: Place, onConnect: () => void): Socket {
  const url = new URL(place.url)
  const isTls = url.protocol === 'https:'
  const { host, port } = addressOf(url)
  if (!isTls) return connect({ port, host, noDelay: true }, onConnect)
  const name = (place.headers.host ?? url.host).replace(/:\d+$/, '')
  return connectTls(
    {
      port,
      host,
      ...(/^[\d.]+$|:/.test(name) ? {} : { servername: name }),
      ALPNProtocols: ['http/1.1'],
      ...(place.ca === undefined ? {} : { ca: authority(place.ca) }),
    },
    onConnect,
  ).setNoDelay(true)
}

function authority(file: string): Buffer {
  let found = authorities.get(file)
  if (found === undefined) {
    found = readFileSync(file)
    authorities.set(file, found)
  }
  return found
}

/** The head of a request as text. */
export function requestText(place: Place, method: string, fields: Readonly<Record<string, string | number>>): string {
  const url = new URL(place.url)
  const all = { host: url.host, ...place.headers, ...fields }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`)
  return `${method} ${url.pathname}${url.search} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`
}

const NOTHING = Buffer.alloc(0)
/** Limit for one answer, including its head. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024

/** Reads answers from a keep-alive connection, one at a time, with a content-length or in chunks. */
export class AnswerReader {
  #pending: Buffer = NOTHING
  readonly #onAnswer: (answer: Answer) => void
  readonly #onBroken: () => void

  constructor(onAnswer: (answer: Answer) => void, onBroken: () => void) {
    this.#onAnswer = onAnswer
    this.#onBroken = onBroken
  }

  read(chunk: Buffer): void {
    const bytes = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk])
    this.#pending = bytes
    const end = bytes.indexOf('\r\n\r\n')
    if (end < 0) return
    const head = bytes.toString('latin1', 0, end)
    const status = Number(head.slice(9, 12))
    const found = readBody(head, status, bytes, end + 4)
    if (found === 'more') {
      if (bytes.length > MAX_ANSWER_BYTES) this.#onBroken()
      return
    }
    if (found === 'broken' || found.end !== bytes.length) return void this.#onBroken()
    this.#pending = NOTHING
    this.#onAnswer({ status, body: found.body })
  }
}

type Found = { readonly body: Buffer; readonly end: number } | 'more' | 'broken'

function readBody(head: string, status: number, bytes: Buffer, from: number): Found {
  if (status === 204 || status === 304) return { body: NOTHING, end: from }
  if (/\r\ntransfer-encoding: *chunked/i.test(head)) return readChunks(bytes, from)
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
  if (length === undefined) return 'broken'
  const end = from + Number(length)
  return bytes.length < end ? 'more' : { body: bytes.subarray(from, end), end }
}

/** Parses from the beginning each time, since chunked answers are few and small here. */
function readChunks(bytes: Buffer, from: number): Found {
  const parts: Buffer[] = []
  for (let at = from; ; ) {
    const line = bytes.indexOf('\r\n', at)
    if (line < 0) return 'more'
    const size = Number.parseInt(bytes.toString('latin1', at, line), 16)
    if (Number.isNaN(size)) return 'broken'
    const end = line + 2 + size + 2
    if (bytes.length < end) return 'more'
    // The last chunk is empty, and trailers are not expected.
    if (size === 0) return { body: Buffer.concat(parts), end }
    parts.push(bytes.subarray(line + 2, end - 2))
    at = end
  }
}
