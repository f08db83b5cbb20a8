/** Operations on the webhooks that one server stores. */
import type { Body } from '../../admin/actions.ts'
import type { Server } from '../../server/index.ts'
import { givenOf, textOf, wholeOf } from './body-fields.ts'

type Filter = Parameters<NonNullable<Server['inbox']>['list']>[0]
type Messages = Awaited<ReturnType<NonNullable<Server['inbox']>['list']>>

const STATES = ['waiting', 'dead', 'delivered'] as const
/** How many webhooks are changed at a time. */
const PAGE = 10_000
/** Most webhooks in one message between replicas. */
const MAX_LISTED = 4000
/** Default number of webhooks in an answer. */
const DEFAULT_LISTED = 200
/** Most characters of the ids that a page of the list continues after, one per replica. */
const MAX_BEFORE_CHARS = 8192
/** Longer bodies are not shown. They must be requested part by part. */
const SHOWN_BYTES = 512 * 1024
/** More parts than the longest body may have. */
const MAX_PARTS = 10_000

/** The webhooks that match. Empty without an inbox. */
export async function listMessages(server: Server, body: Body): Promise<object[]> {
  const limit = Math.min(wholeOf(body, 'limit', 1, Number.MAX_SAFE_INTEGER) ?? DEFAULT_LISTED, MAX_LISTED)
  return ((await server.inbox?.list({ ...filterOf(body), limit })) ?? []).map(message => shown(server, message))
}

/** One webhook, with head and body if these are not too long. */
export async function readMessage(server: Server, body: Body): Promise<object[]> {
  const [message] = (await server.inbox?.list({ ...chosen(body), limit: 1 })) ?? []
  if (message === undefined) return []
  const parts = message.bytes > SHOWN_BYTES ? undefined : await server.inbox!.read(message.id)
  const head = parts && message.key === '' ? headOf(parts.head) : undefined
  const sealedHead = parts && message.key !== '' ? Buffer.from(parts.head).toString('base64') : undefined
  const isReadable = head !== undefined || sealedHead !== undefined
  const body64 = parts && isReadable ? Buffer.from(parts.body).toString('base64') : undefined
  return [{ ...shown(server, message), head, sealedHead, body: body64 }]
}

/** `undefined` if it is damaged. */
function headOf(bytes: Uint8Array): object | undefined {
  try {
    return JSON.parse(Buffer.from(bytes).toString()) as object
  } catch {
    return undefined
  }
}

/** One part of a webhook, by its full id: 0 is the head, then the body follows. */
export async function readPart(server: Server, body: Body): Promise<object[]> {
  const [id, n] = [textOf(body, 'id'), wholeOf(body, 'part', 0, MAX_PARTS)]
  if (id === undefined || n === undefined) throw new TypeError('give an id and a part')
  const bytes = await server.inbox?.readPart(id, n)
  return bytes === undefined ? [] : [{ part: Buffer.from(bytes).toString('base64') }]
}

/** Replays first the webhooks that wait, then dead letters, however many were delivered since. */
export async function replayMessages(server: Server, body: Body, page: number = PAGE): Promise<string[]> {
  const { state, ...filter } = await one(server, chosen(body), page)
  const done: string[] = []
  for (const each of state === undefined ? (['waiting', 'dead'] as const) : [state])
    done.push(...(await inPages(server, 'replay', { ...filter, state: each, limit: page })))
  return done
}

export async function dropMessages(server: Server, body: Body, page: number = PAGE): Promise<string[]> {
  return await inPages(server, 'drop', { ...(await one(server, chosen(body), page)), limit: page })
}

/** All webhooks that match, with the filter of each page. */
async function* pages(server: Server, filter: Filter): AsyncGenerator<readonly [page: Filter, listed: Messages]> {
  for (let page = filter; ; ) {
    const listed = (await server.inbox?.list(page)) ?? []
    yield [page, listed]
    if (listed.length < filter.limit) return
    page = { ...filter, before: [listed.at(-1)!.id] }
  }
}

/** Changes all webhooks that match, page by page. */
async function inPages(server: Server, change: 'replay' | 'drop', filter: Filter): Promise<string[]> {
  const done: string[] = []
  for await (const [page, listed] of pages(server, filter))
    if (listed.length > 0) done.push(...(await server.inbox![change](page)))
  return done
}

/** A prefix of an id or a lane must be unambiguous. */
async function one(server: Server, filter: Omit<Filter, 'limit'>, page: number): Promise<Omit<Filter, 'limit'>> {
  const { id, lane } = filter
  if (id === undefined && lane === undefined) return filter
  let found: string | undefined
  for await (const [, listed] of pages(server, { ...filter, limit: id === undefined ? page : 2 })) {
    if (id !== undefined && listed.length > 1) throw new TypeError(`several webhooks begin with ${id}`)
    found ??= listed[0]?.lane
    if (listed.some(message => message.lane !== found)) throw new TypeError(`several lanes begin with ${lane}`)
  }
  return found === undefined || lane === undefined ? filter : { ...filter, lane: found }
}

export async function pauseRuntime(
  server: Server,
  body: Body,
  paused: boolean,
): Promise<Readonly<Record<string, unknown>>> {
  const { runtime } = filterOf(body)
  if (runtime === undefined) throw new TypeError('give a runtime')
  if (server.inbox === undefined) return {}
  await server.inbox.pause(runtime, paused)
  return { messages: [], paused }
}

function shown(server: Server, { received, expires, next, changed, failedSince: _, ...message }: Messages[number]) {
  const iso = (ms: number) => new Date(ms).toISOString()
  const times = { received: iso(received), expires: iso(expires), next: iso(next), changed: iso(changed) }
  return { ...message, ...times, replica: server.stats().replica }
}

/** An operation that changes something must name what it changes. */
function chosen(body: Body): Omit<Filter, 'limit'> {
  const filter = filterOf(body)
  if (filter.id === undefined && filter.runtime === undefined) throw new TypeError('give an id or a runtime')
  return filter
}

function filterOf(body: Body): Omit<Filter, 'limit'> {
  const { state, since } = body
  if (state !== undefined && !STATES.includes(state as never))
    throw new TypeError(`state must be one of ${STATES.join(', ')}`)
  // An empty text would be 0, and so everything.
  if (since !== undefined && !/^-?\d{1,15}$/.test(String(since)))
    throw new TypeError('since must be a number of milliseconds since 1970')
  const sinceMs = since === undefined ? undefined : Number(since)
  return givenOf({
    ...{ runtime: textOf(body, 'runtime'), lane: textOf(body, 'lane'), id: textOf(body, 'id') },
    ...{
      state: state as Filter['state'],
      since: sinceMs,
      before: textOf(body, 'before', MAX_BEFORE_CHARS)?.split(','),
    },
  })
}
