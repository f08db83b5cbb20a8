/** The actions of operators: POST requests with a JSON body. Each is logged. */
import type { IncomingMessage } from 'node:http'
import { isRecord } from '../protocol/base/is-record.ts'
import type { Logger } from '../protocol/base/log.ts'
import { failurePage, jsonPage, type Page, textPage } from './page.ts'

/** Members of the JSON body. */
export type Body = Readonly<Record<string, unknown>>

/** Resolves to its result for the operator. Throws a TypeError for an invalid body. */
export type Action = (body: Body) => Promise<object> | object

/** An action whose body may be longer than 16 KiB. */
interface LongAction {
  readonly run: Action
  readonly maxBodyBytes: number
}

export type Actions = Readonly<Record<string, Action | LongAction>>

const MAX_BODY_BYTES = 16_384
const MAX_WHO = 128

/**
 * Runs the action at `path`. The caller has shown the admin token, which is no cookie, so a web page cannot send it by
 * accident. A page that was given the token is recognized by its `Origin`.
 */
export async function runAction(
  path: string,
  request: IncomingMessage,
  actions: Actions,
  logger: Logger,
): Promise<Page> {
  const found = Object.hasOwn(actions, path) ? actions[path] : undefined
  if (found === undefined) return textPage(404, 'there is no such action')
  if (request.headers.origin !== undefined) return textPage(403, 'not from a page')
  if (!/^application\/json\b/i.test(request.headers['content-type'] ?? '')) return textPage(415, 'JSON only')
  const { run, maxBodyBytes } = typeof found === 'function' ? { run: found, maxBodyBytes: MAX_BODY_BYTES } : found
  const who = { who: whoOf(request), from: request.socket.remoteAddress ?? '' }
  let body: Body
  try {
    body = await readBody(request, maxBodyBytes)
  } catch (error) {
    return textPage(400, (error as Error).message)
  }
  try {
    const done = await run(body)
    logger.warn({ audit: true, action: path, ...who, body: audited(body), done }, `audit: ${path}`)
    return jsonPage(done)
  } catch (error) {
    logger.warn({ audit: true, action: path, ...who, body: audited(body), err: error }, `audit: ${path} failed`)
    return failurePage(error)
  }
}

/** Reduces objects to the names of their members, since an edited request may contain secrets. */
function audited(body: Body): Body {
  return Object.fromEntries(
    Object.entries(body).map(([name, value]) => [name, isRecord(value) ? Object.keys(value) : value]),
  )
}

/** The user, as named by the operator's own command. It is not verified. */
function whoOf({ headers }: IncomingMessage): string {
  const said = headers['x-sallyport-operator']
  return typeof said === 'string' && /^[\x20-\x7e]+$/.test(said) ? said.slice(0, MAX_WHO) : 'unknown'
}

async function readBody(request: IncomingMessage, maxBytes: number): Promise<Body> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    bytes += chunk.length
    if (bytes > maxBytes) throw new TypeError('the body is too large')
    chunks.push(chunk)
  }
  const body: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8') || '{}')
  if (!isRecord(body)) throw new TypeError('a JSON object is expected')
  return body
}
