/** The way of a request at the edge: who calls, which runtime, may it, and on. */
import { SallyportError } from '../../protocol/base/errors.ts'
import { networkOf } from '../../protocol/base/address.ts'
import type { ExchangeRecord, Handler, HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { type Cidrs, resolveCaller } from '../../protocol/http/forwarded.ts'
import { tellDefect } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { answerOptions, endsHere, passes } from '../../protocol/http/loop-guard.ts'
import { answerPreflight, answerProblem, type CorsPolicy } from '../../protocol/http/problem.ts'
import type { RuntimeSession } from '../control/runtime-session.ts'
import type { Hop } from '../peer/hop.ts'
import type { Registry, Carrier } from '../registry.ts'
import { type EdgeContext, EdgeExchange } from './edge-exchange.ts'
import type { Hold } from './hold.ts'
import type { Hosts } from './hosts.ts'
import { PacedResponse } from './paced.ts'
import type { Policies } from './policies.ts'
import type { QuotaBook, Usage } from './quotas.ts'
import { ReplayBudget } from './replay.ts'

export interface EdgeOptions {
  readonly hosts: Hosts
  readonly registry: Registry<RuntimeSession, Hop>
  readonly policies: Policies
  readonly trustedProxies: Cidrs
  /** Answers whether the server is `ready`, on any host. */
  readonly healthPath: string | undefined
  readonly ready: () => boolean
  readonly replayBytes: number
  readonly replayTotalBytes: number
  readonly hold: Hold
  readonly quotas: QuotaBook
  /** 0: no deadline. */
  readonly responseHeadMs: number
  readonly onExchange: ((record: ExchangeRecord) => void) | undefined
  readonly logger: Logger
}

export class Edge implements EdgeContext {
  readonly replayBudget: ReplayBudget
  readonly hold: Hold
  readonly responseHeadMs: number
  readonly onExchange: ((record: ExchangeRecord) => void) | undefined
  readonly #options: EdgeOptions
  /** What the listener calls. */
  readonly handler: Handler

  constructor(options: EdgeOptions) {
    this.#options = options
    this.replayBudget = new ReplayBudget(options.replayBytes, options.replayTotalBytes)
    this.hold = options.hold
    this.responseHeadMs = options.responseHeadMs
    this.onExchange = options.onExchange
    this.handler = (request, response) => this.#handle(request, response)
  }

  #handle(request: HttpRequest, response: ResponseSink): RequestSink {
    if (request.caller === undefined) resolveCaller(request, this.#options.trustedProxies)
    if (request.path === this.#options.healthPath) return this.#health(request, response)
    if (request.method === 'OPTIONS' && endsHere(request)) return this.#serverOptions(request, response)
    const goesOn = passes(request.headers)
    const runtime = this.#options.hosts.runtimeOf(request.authority)
    if (goesOn && runtime !== undefined) return this.forward(runtime, request, response, request.caller!.address)
    const exchange = new EdgeExchange(this, runtime, request, response)
    if (!goesOn) {
      exchange.fail(new SallyportError('loop-detected'))
      return exchange
    }
    const control = this.#options.hosts.match(request.authority).kind === 'control'
    exchange.fail(new SallyportError(control ? 'misdirected' : 'unknown-host'))
    return exchange
  }

  /**
   * Into the runtime, whatever the host says. `request.caller` is set. `address`: whose quota it is held against besides
   * the runtime's.
   */
  forward(runtime: string, request: HttpRequest, response: ResponseSink, address?: string): RequestSink {
    const usage = this.#options.quotas.enter(runtime, address)
    if (usage === false) {
      const refused = new EdgeExchange(this, runtime, request, response)
      refused.fail(new SallyportError('too-many-requests'))
      return refused
    }
    if (usage?.paced !== true) return this.#start(runtime, request, response, usage)
    const paced = new PacedResponse(usage, response)
    return paced.connect(this.#start(runtime, request, paced, usage))
  }

  #start(runtime: string, request: HttpRequest, response: ResponseSink, usage: Usage | undefined): RequestSink {
    const exchange = new EdgeExchange(this, runtime, request, response, usage)
    try {
      exchange.start()
    } catch (error) {
      exchange.threw(error)
    }
    return exchange
  }

  /** Of the server, not of a runtime. */
  #serverOptions(request: HttpRequest, response: ResponseSink): RequestSink {
    const exchange = new EdgeExchange(this, undefined, request, response)
    exchange.answered(204)
    answerOptions(response, request)
    return exchange
  }

  #health(request: HttpRequest, response: ResponseSink): RequestSink {
    const exchange = new EdgeExchange(this, undefined, request, response)
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      exchange.fail(new SallyportError('method-not-allowed'))
      return exchange
    }
    const [status, body] = this.#options.ready() ? [200, 'ok\n'] : [503, 'not ready\n']
    exchange.answered(status)
    const headers = ['content-type', 'text/plain', 'content-length', String(body.length), 'cache-control', 'no-store']
    const head = request.method === 'HEAD'
    response.responseHead({ status, headers, bodyBytes: head ? 0 : body.length })
    if (!head) response.responseData(new TextEncoder().encode(body))
    response.responseEnd([])
    return exchange
  }

  get quotaExchanges(): number {
    return this.#options.quotas.exchanges
  }

  pick(runtime: string, not: Carrier | undefined, instance: string | undefined): Carrier | undefined {
    const { registry } = this.#options
    const route = registry.pick(runtime, not, instance)
    if (route === undefined || takes(route)) return route
    // Its end is on the way, or it is full: another one may be well.
    const other = registry.pick(runtime, route, instance)
    return other !== not && other !== undefined && takes(other) ? other : undefined
  }

  full(runtime: string): boolean {
    return this.#options.registry.pick(runtime)?.full === true
  }

  knows(runtime: string): boolean {
    return this.hold.knows(runtime) || this.#options.registry.knows(runtime, this.hold.limits.forgetMs)
  }

  ask(runtime: string, failed: Carrier | undefined, address: string | undefined): boolean | 'refused' {
    const network = address === undefined ? undefined : networkOf(address)
    return this.#options.registry.ask(runtime, failed !== undefined && failed.hops > 0, network)
  }

  defect(error: unknown): void {
    tellDefect(this.#options.logger, 'an exchange failed', error)
  }

  answerError(exchange: EdgeExchange, error: SallyportError): void {
    const { request, response, runtime } = exchange
    answerProblem(response, request, error, this.#policyOf(runtime, request.path))
  }

  answerOffline(exchange: EdgeExchange): boolean {
    if (exchange.request.method !== 'OPTIONS') return false
    const policy = this.#policyOf(exchange.runtime, exchange.request.path)
    if (policy === undefined || !answerPreflight(exchange.response, exchange.request, policy)) return false
    exchange.answered(204)
    return true
  }

  /** Of a request that never came here. */
  corsOf(request: HttpRequest): CorsPolicy | undefined {
    return this.#policyOf(this.#options.hosts.runtimeOf(request.authority), request.path)
  }

  #policyOf(runtime: string | undefined, path: string): CorsPolicy | undefined {
    const online = runtime !== undefined && this.#options.registry.countOf(runtime) > 0
    return this.#options.policies.find(runtime, path, online)
  }
}

function takes(route: Carrier): boolean {
  return route.usable && !route.full
}
