/** The least HTTP/1.1 client that can tell a whole answer from a broken one: bodies have a content-length. */
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { Place } from './load.ts'

export interface Answer {
  readonly status: number
  readonly body: Buffer
}

const authorities = new Map<string, Buffer>()

/** A TCP or TLS socket to the place; its errors come with 'close'. */
export function dial(place: Place, onConnect: () => void): Socket {
  const url = new URL(place.url)
  const isTls = url.protocol === 'https:'
  const port = Number(url.port || (isTls ? 443 : 80))
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1')
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
export function requestHead(place: Place, method: string, fields: Readonly<Record<string, string | number>>): string {
  const url = new URL(place.url)
  const all = { host: url.host, ...place.headers, ...fields }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`)
  return `${method} ${url.pathname}${url.search} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`
}

/** Reads answers off a keep-alive connection, one at a time. */
export class AnswerReader {
  #pending: Buffer | undefined
  readonly #onAnswer: (answer: Answer) => void
  readonly #onBroken: (why: string) => void

  constructor(onAnswer: (answer: Answer) => void, onBroken: (why: string) => void) {
    this.#onAnswer = onAnswer
    this.#onBroken = onBroken
  }

  read(chunk: Buffer): void {
    const bytes = this.#pending === undefined ? chunk : Buffer.concat([this.#pending, chunk])
    this.#pending = bytes
    const end = bytes.indexOf('\r\n\r\n')
    if (end < 0) return
    const head = bytes.toString('latin1', 0, end)
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
    if (length === undefined) return void this.#onBroken('an answer without a content-length')
    const total = end + 4 + Number(length)
    if (bytes.length < total) return
    if (bytes.length > total) return void this.#onBroken('bytes behind an answer')
    this.#pending = undefined
    this.#onAnswer({ status: Number(head.slice(9, 12)), body: bytes.subarray(end + 4) })
  }
}
