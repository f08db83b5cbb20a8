/** HTTP/1.1 as it stands on the wire, read by tests at both ends: nothing is repaired, nothing is hidden. */
import { Readable } from 'node:stream'
import { ByteReader, WireFault } from './byte-reader.ts'

export interface WireHead {
  /** Request line or status line. */
  readonly start: string
  /** `[name, value, ...]` as they came. */
  readonly fields: string[]
}

/** A head, or undefined where the stream ends instead. */
export async function readHead(reader: ByteReader): Promise<WireHead | undefined> {
  const start = await reader.line()
  if (start === undefined) return undefined
  return { start, fields: await readFields(reader) }
}

export async function readFields(reader: ByteReader): Promise<string[]> {
  const fields: string[] = []
  for (;;) {
    const line = await reader.line()
    if (line === undefined) throw new Error('the stream ended within a head')
    if (line === '') return fields
    const colon = line.indexOf(':')
    if (colon < 1) throw new WireFault(`no field: ${JSON.stringify(line)}`)
    fields.push(line.slice(0, colon), line.slice(colon + 1).trim())
  }
}

/** All values of a field. */
export function values(fields: readonly string[], name: string): string[] {
  return fields.filter((_, i) => i % 2 === 1 && fields[i - 1]?.toLowerCase() === name)
}

export function value(fields: readonly string[], name: string): string | undefined {
  return values(fields, name)[0]
}

export type BodyForm = 'none' | 'chunked' | 'close' | number

/** How the body of a head is delimited; `close` only where `isResponse`. */
export function bodyForm(fields: readonly string[], isResponse: boolean): BodyForm {
  if (value(fields, 'transfer-encoding') === 'chunked') return 'chunked'
  const length = value(fields, 'content-length')
  if (length !== undefined) return Number(length)
  return isResponse ? 'close' : 'none'
}

/** The chunks of a body as they come; trailers are pushed to `trailers`. Throws where the body is cut. */
export async function* readBody(reader: ByteReader, form: BodyForm, trailers: string[]): AsyncGenerator<Buffer> {
  if (form === 'none') return
  if (form === 'chunked') return yield* readChunked(reader, trailers)
  if (form === 'close') return yield* readToEnd(reader)
  for (let left = form; left > 0; ) {
    const chunk = await reader.some(left)
    if (chunk === undefined) throw new Error(`the body was cut ${left} bytes early`)
    left -= chunk.length
    yield chunk
  }
}

async function* readChunked(reader: ByteReader, trailers: string[]): AsyncGenerator<Buffer> {
  for (;;) {
    const line = await reader.line()
    if (line === undefined) throw new Error('the body was cut between chunks')
    if (!/^[0-9a-f]+$/i.test(line)) throw new WireFault(`no chunk size: ${JSON.stringify(line)}`)
    let left = Number.parseInt(line, 16)
    if (left === 0) {
      trailers.push(...(await readFields(reader)))
      return
    }
    while (left > 0) {
      const part = await reader.some(left)
      if (part === undefined) throw new Error('the body was cut within a chunk')
      left -= part.length
      yield part
    }
    if ((await reader.line()) !== '') throw new WireFault('no CRLF behind a chunk')
  }
}

/** The content of these bytes, which must be one whole body in chunks. */
export async function contentOf(chunked: Buffer): Promise<Buffer> {
  const reader = new ByteReader(Readable.from([chunked]))
  const content = Buffer.concat(await Readable.from(readBody(reader, 'chunked', [])).toArray())
  if ((await reader.some()) !== undefined) throw new WireFault('bytes behind the last chunk')
  return content
}

async function* readToEnd(reader: ByteReader): AsyncGenerator<Buffer> {
  for (;;) {
    const chunk = await reader.some()
    if (chunk === undefined) return
    yield chunk
  }
}

export function writeFields(fields: readonly string[]): string {
  let text = ''
  for (let i = 0; i < fields.length; i += 2) text += `${fields[i]}: ${fields[i + 1]}\r\n`
  return text
}

export function chunk(bytes: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')])
}

export async function collect(chunks: AsyncIterable<Buffer>): Promise<Buffer> {
  const held: Buffer[] = []
  for await (const part of chunks) held.push(part)
  return Buffer.concat(held)
}
