/** Chooses the outbound proxy between this host and the server, and asks it for a connection (CONNECT). */
import type { Duplex } from 'node:stream'
import { cidrsContain, isLoopback, isNetwork, parseCidrs } from '../../protocol/base/address.ts'
import { guardWith } from '../../protocol/base/guard.ts'
import { addressOf, withoutBrackets } from '../../protocol/base/host-port.ts'

export interface OutboundProxy {
  readonly host: string
  readonly port: number
  /** Whether to use TLS to the proxy itself. */
  readonly encrypted: boolean
  /** Value of `proxy-authorization`, if the URL has credentials. A secret. */
  readonly authorization: string | undefined
}

type Environment = Readonly<Record<string, string | undefined>>

/** Reads the address of a proxy. Throws TypeError, without the credentials in its message. */
export function parseProxy(text: string): OutboundProxy {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`)
  if (url === null) throw new TypeError('the proxy is not a URL; write http://host:port')
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new TypeError(`the proxy has the scheme "${url.protocol.slice(0, -1)}"; only http and https are supported`)
  }
  return { ...addressOf(url), encrypted: url.protocol === 'https:', authorization: basic(url) }
}

function basic(url: URL): string | undefined {
  if (url.username === '' && url.password === '') return undefined
  const pair = `${decoded(url.username)}:${decoded(url.password)}`
  return `Basic ${Buffer.from(pair).toString('base64')}`
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new TypeError('the user name or password of the proxy is not percent-encoded: write % as %25')
  }
}

/**
 * The proxy for `server`, or `undefined` for a direct connection. The option takes precedence over the environment, including
 * `NO_PROXY`; an empty option means no proxy. Loopback is always direct unless the option says otherwise.
 */
export function chooseProxy(server: URL, option: string | undefined, env: Environment): OutboundProxy | undefined {
  if (option !== undefined) return option === '' ? undefined : parseProxy(option)
  const text = env.HTTPS_PROXY || env.https_proxy || env.ALL_PROXY || env.all_proxy
  if (!text || isLoopback(server.hostname)) return undefined
  if (isExcluded(server, env.NO_PROXY || env.no_proxy || '')) return undefined
  return parseProxy(text)
}

/** `NO_PROXY` as curl reads it: names cover their subdomains, `*` covers all; an entry may have a port, or be a CIDR. */
function isExcluded(server: URL, list: string): boolean {
  const { host, port } = addressOf(server)
  return list.split(/[\s,]+/).some(entry => entry !== '' && excludes(entry.toLowerCase(), host, String(port)))
}

function excludes(entry: string, host: string, port: string): boolean {
  if (entry === '*') return true
  if (entry.includes('/')) return isNetwork(entry) && cidrsContain(parseCidrs([entry]), host)
  const withPort = /^(\[[^\]]*\]|[^:]*):(\d+)$/.exec(entry)
  if (withPort !== null && withPort[2] !== port) return false
  const name = withoutBrackets(withPort?.[1] ?? entry).replace(/^\*?\./, '')
  return host === name || host.endsWith(`.${name}`)
}

/** The proxy's answer to CONNECT. */
export interface ProxyAnswer {
  readonly status: number
  /** `Basic` if the proxy offers it, else the first scheme of `proxy-authenticate`, such as `Negotiate`. */
  readonly scheme: string | undefined
}

const MAX_HEAD_BYTES = 16 * 1024

/** Sends CONNECT for `authority` over an open socket and calls back once, with the answer's head. */
export function askProxy(
  socket: Duplex,
  authority: string,
  authorization: string | undefined,
  callback: (error: Error | undefined, answer: ProxyAnswer) => void,
): void {
  const head = [`CONNECT ${authority} HTTP/1.1`, `Host: ${authority}`]
  if (authorization !== undefined) head.push(`Proxy-Authorization: ${authorization}`)
  socket.write(`${head.join('\r\n')}\r\n\r\n`)

  let received = ''
  const finish = (error: Error | undefined, answer: ProxyAnswer = { status: 0, scheme: undefined }) => {
    socket.off('data', onData).off('close', onClose).off('error', onError)
    socket.pause()
    callback(error, answer)
  }
  const guard = guardWith(error => finish(error as Error))
  const onError = guard((error: Error) => finish(error))
  const onClose = guard(() => finish(new Error('the proxy closed the connection')))
  const onData = guard((chunk: Buffer) => {
    received += chunk.toString('latin1')
    const end = received.indexOf('\r\n\r\n')
    // Without its end, the head is at least as long as what arrived, less three bytes that may begin the end.
    const length = end < 0 ? received.length - 3 : end
    if (length > MAX_HEAD_BYTES) return finish(new Error('the answer of the proxy is too long'))
    if (end < 0) return
    const answer = readAnswer(received.slice(0, end))
    if (answer === undefined) return finish(new Error('the answer of the proxy is not HTTP'))
    // Behind the proxy nobody speaks before we do (TLS, WebSocket), so further bytes here are an error.
    if (answer.status === 200 && received.length > end + 4) return finish(new Error('the proxy sent too much'))
    finish(undefined, answer)
  })
  socket.on('data', onData).on('close', onClose).on('error', onError)
}

function readAnswer(head: string): ProxyAnswer | undefined {
  const status = /^HTTP\/1\.[01] (\d{3})(?: |\r|$)/.exec(head)
  if (status === null) return undefined
  // A proxy may offer several schemes, in one field or in a field each.
  const offered = Array.from(head.matchAll(/\r\nproxy-authenticate:([^\r\n]*)/gi), ([, value]) => value).join()
  const [, scheme] = /(?:^|,)[ \t]*(basic)\b/i.exec(offered) ?? /^[ \t]*([\w-]{1,64})/.exec(offered) ?? []
  const code = Number(status[1])
  return { status: code >= 200 && code < 300 ? 200 : code, scheme }
}
