import type { ServerResponse } from 'node:http'
import { SallyportError } from '../protocol/base/errors.ts'
import type { Actions } from './actions.ts'
import { type EventSource, eventPage } from './events.ts'
import type { InspectedSource } from './inspected.ts'
import type { Exposition } from './metrics.ts'
import type { Traffic } from './traffic.ts'

/** What the listeners show about a component. */
export interface AdminSource {
  /** Whether it can serve now. */
  ready(): boolean
  /** True as long as views and actions are still missing, because the component is starting. */
  isStarting?(): boolean
  /** For `/status`: JSON values without secrets. */
  status(): unknown
  /**
   * Other pages for a caller with the token, by path. They return JSON values without secrets, or `undefined` for not found. If a path
   * ends with a slash, the rest of the requested path is the parameter `id`.
   */
  readonly views?: Readonly<Record<string, (query: URLSearchParams) => unknown>> | undefined
  /** Events that a caller with the token may follow (`text/event-stream`), by path. */
  readonly streams?: Readonly<Record<string, EventSource>> | undefined
  /** Actions for a caller with the token, by path. */
  readonly actions?: Actions | undefined
  /** Exchanges that the page shows in detail. */
  readonly inspector?: InspectedSource | undefined
  /** The traffic that the page draws. */
  readonly traffic?: Traffic | undefined
  /** What an operator can do about a failure, by error code, for the page. */
  readonly advice?: Readonly<Record<string, string>> | undefined
  metrics(accept?: string): Promise<Exposition>
  /** Metrics that name tenants, at `/metrics/runtimes`, for a caller with the token. */
  readonly runtimeMetrics?: ((accept?: string) => Promise<Exposition>) | undefined
}

export interface Page {
  readonly status: number
  readonly contentType: string
  readonly text: string
  /** Added to the listener's own headers, or replacing them. */
  readonly headers?: Readonly<Record<string, string>>
  /** Writes the body after the head, until the response closes. `text` is then not sent. */
  readonly stream?: (response: ServerResponse) => void
}

export const TEXT = 'text/plain; charset=utf-8'

/** An answer in words. */
export function textPage(status: number, text: string): Page {
  return { status, contentType: TEXT, text: `${text}\n` }
}

/** A value as JSON. */
export function jsonPage(value: unknown, indent?: number): Page {
  return { status: 200, contentType: 'application/json', text: `${JSON.stringify(value, undefined, indent)}\n` }
}

/** Tells a caller with the token why there is no result. */
export function failurePage(error: unknown): Page {
  const isMisuse = error instanceof TypeError || error instanceof RangeError
  const status = error instanceof SallyportError ? error.status : 500
  return textPage(isMisuse ? 400 : status, (error as Error).message)
}

export const NOT_FOUND = textPage(404, 'not found')

/** What is not there yet may come. */
export const STARTING = textPage(503, 'it is still starting')

/** `/livez`, `/readyz` and `/metrics`. `undefined` for any other path. */
export async function publicPage(
  path: string,
  source: AdminSource,
  accept: string | undefined,
): Promise<Page | undefined> {
  switch (path) {
    case '/livez':
      return textPage(200, 'ok')
    case '/readyz':
      return source.ready() ? textPage(200, 'ok') : textPage(503, 'not ready')
    case '/metrics':
      return { status: 200, ...(await source.metrics(accept)) }
    default:
      return undefined
  }
}

/** `/status`, `/metrics/runtimes` and the component's own views. `undefined` for any other path. */
export async function protectedPage(
  path: string,
  source: AdminSource,
  query: URLSearchParams = new URLSearchParams(),
  accept?: string,
): Promise<Page | undefined> {
  if (path === '/metrics/runtimes' && source.runtimeMetrics !== undefined) {
    return { status: 200, ...(await source.runtimeMetrics(accept)) }
  }
  const views: AdminSource['views'] = { ...source.views, '/status': () => source.status() }
  const { streams = {} } = source
  if (Object.hasOwn(streams, path)) return eventPage(streams[path]!)
  const folder = path.slice(0, path.lastIndexOf('/') + 1)
  const name = Object.hasOwn(views, path) ? path : folder
  if (!Object.hasOwn(views, name)) return undefined
  if (name !== path) query.set('id', path.slice(folder.length))
  try {
    const value = await views[name]!(query)
    if (value === undefined) return undefined
    return jsonPage(value, 2)
  } catch (error) {
    return failurePage(error)
  }
}
