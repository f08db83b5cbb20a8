/** OpenTelemetry's environment variables, as far as they concern traces over OTLP/HTTP. */

type Environment = Readonly<Record<string, string | undefined>>

/** Settings from the variables. Absent ones are `undefined`. */
export interface OtelSettings {
  /** `OTEL_SDK_DISABLED`, or `OTEL_TRACES_EXPORTER=none`. */
  readonly disabled: boolean
  readonly url: string | undefined
  readonly headers: Readonly<Record<string, string>>
  readonly timeoutMs: number | undefined
  /** Includes `service.name`, if it is set. */
  readonly resource: Readonly<Record<string, string>>
  readonly sampler: { readonly ratio: number; readonly parentBased: boolean } | undefined
}

const PATH = '/v1/traces'

/**
 * Reads the `OTEL_*` variables. Those for traces take precedence over those for all signals.
 *
 * @throws {TypeError} if a value is invalid. The error names the variable, but never its value.
 *
 * @example
 * ```ts
 * import { readOtelEnvironment } from 'sallyport/tracing'
 *
 * const { url = 'http://127.0.0.1:4318/v1/traces', headers } = readOtelEnvironment(process.env)
 * ```
 */
export function readOtelEnvironment(environment: Environment): OtelSettings {
  const read = (name: string) => valueIn(environment, name)
  const name = (what: string) => nameIn(environment, what)
  const protocol = read(name('PROTOCOL'))
  if (protocol === 'grpc') throw new TypeError(`OTEL_${name('PROTOCOL')}: gRPC is not supported, only HTTP`)
  const resource = pairs('RESOURCE_ATTRIBUTES', read('RESOURCE_ATTRIBUTES'))
  const service = read('SERVICE_NAME')
  return {
    disabled: read('SDK_DISABLED')?.toLowerCase() === 'true' || read('TRACES_EXPORTER') === 'none',
    url: urlOf(name('ENDPOINT'), read(name('ENDPOINT'))),
    headers: pairs(name('HEADERS'), read(name('HEADERS'))),
    timeoutMs: milliseconds(name('TIMEOUT'), read(name('TIMEOUT'))),
    resource: service === undefined ? resource : { ...resource, 'service.name': service },
    sampler: samplerOf(read('TRACES_SAMPLER'), read('TRACES_SAMPLER_ARG')),
  }
}

/** The URL for traces, given the base URL for all signals. */
export function tracesUrl(endpoint: string): string {
  const url = new URL(endpoint)
  url.pathname = url.pathname.replace(/\/?$/, PATH)
  return url.href
}

function valueIn(environment: Environment, name: string): string | undefined {
  return environment[`OTEL_${name}`]?.trim() || undefined
}

/** The variable for traces if it is set, otherwise that for all signals. */
function nameIn(environment: Environment, what: string): string {
  const name = `EXPORTER_OTLP_TRACES_${what}`
  return valueIn(environment, name) === undefined ? `EXPORTER_OTLP_${what}` : name
}

function urlOf(name: string, given: string | undefined): string | undefined {
  if (given === undefined) return undefined
  const isHttp = URL.canParse(given) && /^https?:$/.test(new URL(given).protocol)
  if (!isHttp) throw new TypeError(`OTEL_${name} must be a URL with http:// or https://`)
  return name === 'EXPORTER_OTLP_ENDPOINT' ? tracesUrl(given) : given
}

/** Throws a TypeError that names the variable if its URL has credentials. Only for who uses that URL. */
export function refuseCredentials(environment: Environment): void {
  const name = nameIn(environment, 'ENDPOINT')
  const url = valueIn(environment, name)
  if (url === undefined) return
  const { username, password } = new URL(url)
  if (username !== '' || password !== '')
    throw new TypeError(`OTEL_${name} must have no credentials: use OTEL_EXPORTER_OTLP_HEADERS`)
}

/** `a=1,b=2`, with values percent-encoded. */
function pairs(name: string, text = ''): Record<string, string> {
  const found: Record<string, string> = {}
  for (const pair of text.split(',')) {
    if (pair.trim() === '') continue
    const at = pair.indexOf('=')
    const key = pair.slice(0, at).trim()
    try {
      if (at < 1 || key === '') throw new URIError()
      found[decodeURIComponent(key)] = decodeURIComponent(pair.slice(at + 1).trim())
    } catch {
      throw new TypeError(`OTEL_${name} must be a list such as name=value,name=value, percent-encoded`)
    }
  }
  return found
}

function milliseconds(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (/^[1-9][0-9]{0,5}$/.test(text)) return Number(text)
  throw new TypeError(`OTEL_${name} must be a number of milliseconds`)
}

const SAMPLERS: Readonly<Record<string, (share: number) => number>> = {
  always_on: () => 1,
  always_off: () => 0,
  traceidratio: share => share,
}

function samplerOf(text: string | undefined, argument = '1'): OtelSettings['sampler'] {
  if (text === undefined) return undefined
  const [, parent, name] = /^(parentbased_)?(.*)$/.exec(text)!
  const sampler = Object.hasOwn(SAMPLERS, name!) ? SAMPLERS[name!] : undefined
  if (sampler === undefined) {
    throw new TypeError(
      `OTEL_TRACES_SAMPLER must be one of ${Object.keys(SAMPLERS).join(', ')}, each also with the prefix parentbased_`,
    )
  }
  const share = Number(argument)
  if (!(share >= 0 && share <= 1)) throw new TypeError('OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1')
  return { ratio: sampler(share), parentBased: parent !== undefined }
}
