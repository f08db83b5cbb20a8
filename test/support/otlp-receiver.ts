/** A receiver of OTLP over HTTP that takes only what the specification has, and decodes it. */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { AttributeValue, FinishedSpan, SpanKind } from '../../protocol/trace/span.ts'

const KINDS: readonly (SpanKind | undefined)[] = [undefined, 'internal', 'server', 'client', 'producer', 'consumer']

type Json = Readonly<Record<string, unknown>>

/** The members of an object, and no others. */
function members(value: unknown, ...names: string[]): Json {
  if (typeof value !== 'object' || value === null) throw new Error('no object')
  for (const name of Object.keys(value)) if (!names.includes(name)) throw new Error(`${name} is unknown`)
  return value as Json
}

const list = (value: unknown): unknown[] => {
  if (!Array.isArray(value)) throw new Error('no list')
  return value
}

function matching(value: unknown, pattern: RegExp): string {
  if (typeof value !== 'string' || !pattern.test(value)) throw new Error(`${String(value)} is not ${pattern}`)
  return value
}

/** What JSON has no number for is text (`NaN`). */
function readValue(type: string, value: unknown): AttributeValue {
  if (type === 'doubleValue') return typeof value === 'number' ? value : Number(matching(value, /^(?:NaN|-?Infinity)$/))
  if (type !== 'intValue') return value as AttributeValue
  const whole = BigInt(matching(value, /^-?\d+$/))
  if (BigInt.asIntN(64, whole) !== whole) throw new Error(`${whole} has no 64 bits`)
  return Number(whole)
}

function attributesOf(value: unknown): Record<string, AttributeValue> {
  const found: Record<string, AttributeValue> = {}
  for (const pair of list(value)) {
    const { key, value: any } = members(pair, 'key', 'value')
    const [[type, inner] = [], ...more] = Object.entries(
      members(any, 'stringValue', 'boolValue', 'intValue', 'doubleValue'),
    )
    if (type === undefined || more.length > 0 || Object.hasOwn(found, String(key))) throw new Error('a bad attribute')
    found[matching(key, /./)] = readValue(type, inner)
  }
  return found
}

const TRACE_ID = /^(?!0+$)[0-9a-f]{32}$/
const SPAN_ID = /^(?!0+$)[0-9a-f]{16}$/

function spanOf(value: unknown): FinishedSpan {
  const span = members(
    value,
    ...['traceId', 'spanId', 'traceState', 'parentSpanId', 'flags', 'name', 'kind', 'startTimeUnixNano'],
    ...['endTimeUnixNano', 'attributes', 'links', 'status'],
  )
  const [start, end] = [span.startTimeUnixNano, span.endTimeUnixNano].map(time => BigInt(matching(time, /^\d{19}$/)))
  if (start! > end!) throw new Error('it ends before it begins')
  const links = list(span.links ?? []).map(link => members(link, 'traceId', 'spanId', 'traceState', 'flags'))
  return {
    traceId: matching(span.traceId, TRACE_ID),
    spanId: matching(span.spanId, SPAN_ID),
    parentId: span.parentSpanId === undefined ? undefined : matching(span.parentSpanId, SPAN_ID),
    state: span.traceState as string | undefined,
    name: matching(span.name, /./),
    kind: KINDS[span.kind as number]!,
    startMs: Number(start) / 1e6,
    endMs: Number(end) / 1e6,
    attributes: attributesOf(span.attributes),
    links: links.map(link => ({
      traceId: matching(link.traceId, TRACE_ID),
      spanId: matching(link.spanId, SPAN_ID),
      sampled: (Number(link.flags) & 1) === 1,
    })),
    failed: span.status !== undefined && members(span.status, 'code', 'message').code === 2,
  }
}

interface Received {
  readonly method: string | undefined
  readonly path: string | undefined
  readonly headers: IncomingHttpHeaders
  readonly resource: Readonly<Record<string, AttributeValue>>
  readonly spans: readonly FinishedSpan[]
}

function decode(body: string): Pick<Received, 'resource' | 'spans'> {
  const { resourceSpans } = members(JSON.parse(body), 'resourceSpans')
  const [first, ...more] = list(resourceSpans).map(each => members(each, 'resource', 'scopeSpans'))
  if (first === undefined || more.length > 0) throw new Error('not one resource')
  const spans = list(first.scopeSpans).flatMap(scope => {
    const { scope: by, spans: found } = members(scope, 'scope', 'spans')
    matching(members(by, 'name', 'version').name, /^sallyport$/)
    return list(found).map(spanOf)
  })
  return { resource: attributesOf(members(first.resource, 'attributes').attributes), spans }
}

/** Answers one request; the default is 200. */
type Reply = (response: ServerResponse) => void

export class OtlpReceiver {
  readonly url: string
  readonly requests: Received[] = []
  /** What is wrong with what came. */
  readonly faults: string[] = []
  /** For the next requests, in order. */
  readonly replies: Reply[] = []
  readonly #server: Server
  #waiting: (() => void)[] = []

  private constructor(server: Server) {
    this.#server = server
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    server.on('request', async (request, response) => {
      const { method, url: path, headers } = request
      const body = await text(request)
      try {
        this.requests.push({ method, path, headers, ...decode(body) })
      } catch (error) {
        this.faults.push(String(error))
      }
      const reply = this.replies.shift() ?? (to => to.setHeader('content-type', 'application/json').end('{}'))
      reply(response)
      for (const wake of this.#waiting.splice(0)) wake()
    })
  }

  static async start(): Promise<OtlpReceiver> {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new OtlpReceiver(server)
  }

  get spans(): FinishedSpan[] {
    return this.requests.flatMap(({ spans }) => spans)
  }

  /** Resolves once what came satisfies `enough`. */
  async until(enough: (receiver: OtlpReceiver) => boolean): Promise<void> {
    while (!enough(this)) await new Promise<void>(resolve => this.#waiting.push(resolve))
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, 'close')
  }
}
