/** The route table of the GitOps runtime. */

import { demand } from '../protocol/base/limit.ts'
import { type Logger, noLogger } from '../protocol/base/log.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import { isDnsLabel } from '../protocol/base/names.ts'
import type { Route, RouteTable } from './table.ts'

/** Options of {@link gitopsRuntime}. */
export interface GitopsRuntimeOptions {
  /** Namespaces whose event sources receive webhooks. Without any, webhooks are answered with 404, and a warning says why. */
  namespaces?: readonly string[] | undefined
  /** Names of the event sources that receive webhooks. The router answers 404 for any other. Default: all. Empty: none. */
  eventSources?: readonly string[] | undefined
  /** Origins of the UI that calls App-Proxy. Without any, our own answers have no CORS fields. */
  corsOrigins?: readonly string[] | undefined
  /** Default `cluster.local`. */
  clusterDomain?: string | undefined
  /** Default `http://cap-app-proxy:3017`. */
  appProxy?: string | undefined
  /** Default `http://argo-server:2746`. */
  workflows?: string | undefined
  /**
   * Which webhooks (POST) the server of a client stores: those that cannot be delivered at once (`fallback`), all (`always`),
   * or none (`off`, the default).
   */
  inbox?: 'off' | 'fallback' | 'always' | undefined
  /** Same as in {@link RouteTable}, for tests and demos. */
  resolve?: Record<string, string> | undefined
  logger?: Logger | undefined
}

const MEMBERS: Members<GitopsRuntimeOptions> = {
  namespaces: 'strings',
  eventSources: 'strings',
  corsOrigins: 'strings',
  clusterDomain: 'string',
  appProxy: 'string',
  workflows: 'string',
  inbox: 'string',
  resolve: 'object',
  logger: 'object',
}

/** Largest body that GitHub sends. */
const WEBHOOK_BODY_BYTES = 25 * 1024 * 1024

/**
 * The route table of a GitOps runtime: App-Proxy, the webhooks of Argo Events, and Argo Workflows.
 *
 * @example
 * ```ts
 * import { createRouter, gitopsRuntime } from 'sallyport/router'
 *
 * const router = createRouter({ routes: gitopsRuntime({ namespaces: ['argo-events'] }) })
 * router.match({ url: '/webhooks/argo-events/github', method: 'POST' }).target
 * ```
 */
export function gitopsRuntime(options: GitopsRuntimeOptions = {}): RouteTable {
  checkMembers('', options, MEMBERS)
  const namespaces = [...(options.namespaces ?? [])]
  checkNames('namespaces', namespaces)
  checkNames('eventSources', options.eventSources)
  if (namespaces.length === 0) {
    const message = 'no namespaces are allowed: webhooks are answered with 404 (set preset.namespaces)'
    ;(options.logger ?? noLogger).warn({ route: 'webhooks' }, message)
  }
  return {
    routes: [
      appProxy(options),
      {
        name: 'workflows',
        match: { path: '/workflows/' },
        target: options.workflows ?? 'http://argo-server:2746',
        rewrite: { stripPrefix: '/workflows' },
      },
      ...webhooks(options, namespaces),
      { name: 'readyz', match: { path: '/readyz' }, answer: { body: 'ok' } },
      { name: 'healthz', match: { path: '/healthz' }, answer: { body: 'ok' } },
    ],
    resolve: options.resolve,
  }
}

/** A wildcard such as `*` would match nothing. */
function checkNames(option: string, names: readonly string[] = []): void {
  for (const name of names)
    demand(isDnsLabel(name), `${option}: ${JSON.stringify(name)} is not a name of a-z, 0-9 and "-"`)
}

function webhooks(options: GitopsRuntimeOptions, namespaces: string[]): Route[] {
  const { clusterDomain = 'cluster.local', eventSources, inbox } = options
  const route: Route = {
    name: 'webhooks',
    match: { path: '/webhooks/{namespace}/{eventSource}' },
    target: `http://{eventSource}-eventsource-svc.{namespace}.svc.${clusterDomain}:80`,
    allow: { namespace: namespaces, ...(eventSources !== undefined && { eventSource: [...eventSources] }) },
    limits: { bodyBytes: WEBHOOK_BODY_BYTES },
  }
  if (inbox === undefined || inbox === 'off') return [route]
  // An inbox takes only methods with a body. The others still reach the event sources.
  const kept: Route = { ...route, match: { ...route.match, methods: ['POST'] }, inbox: { mode: inbox } }
  return [kept, { ...route, name: 'webhooks-other' }]
}

function appProxy(options: GitopsRuntimeOptions): Route {
  const route: Route = {
    name: 'app-proxy',
    match: { path: '/app-proxy' },
    target: options.appProxy ?? 'http://cap-app-proxy:3017',
  }
  const origins = options.corsOrigins ?? []
  if (origins.length === 0) return route
  return {
    ...route,
    cors: {
      origins: [...origins],
      methods: ['GET', 'HEAD', 'PUT', 'PATCH', 'POST', 'DELETE'],
      headers: ['content-type', 'x-access-token'],
      credentials: true,
    },
  }
}
