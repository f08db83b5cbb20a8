/** The first lines on a terminal, which show what is running, and lines about its sessions. */
import type { Tunnel } from '../../client/index.ts'
import { detached } from '../../protocol/base/guard.ts'
import { addressOf, formatAddress } from '../../protocol/base/host-port.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { Server } from '../../server/index.ts'
import { publicUrl } from '../../server/public-url.ts'
import { accepts } from '../accepts.ts'
import type { ClientConfig } from '../config/client.ts'
import type { ServerConfig } from '../config/server.ts'
import { hasSession } from '../service/self-check.ts'
import type { Terminal } from './terminal.ts'

export function announceClient(terminal: Terminal, tunnel: Tunnel, config: ClientConfig): void {
  let seen = false
  let away = false
  tunnel.on('connected', ({ runtime }) => {
    if (seen && away) terminal.note('connected again')
    away = false
    if (seen) return
    seen = true
    terminal.banner('public', tunnel.url ?? `runtime ${runtime}; the server does not know its URL`)
    announceTarget(terminal, config)
  })
  tunnel.on('disconnected', () => {
    away ||= !hasSession(tunnel)
  })
  let active = true
  tunnel.on('standing', event => {
    if (event.active !== active) terminal.note(event.active ? 'this client gets the traffic now' : STANDBY)
    active = event.active
  })
}

const STANDBY = 'on standby: another client of this runtime gets the traffic'

function announceTarget(terminal: Terminal, config: ClientConfig): void {
  const { target } = config
  if (target === undefined) {
    terminal.banner('target', `routes of ${config.routes ?? `the preset ${config.preset}`}`)
    return
  }
  const told = accepts(addressOf(new URL(target))).then(answers =>
    terminal.banner('target', answers ? target : `${target}: it does not accept connections yet`),
  )
  detached(noLogger, 'the look at the target', told)
}

export function announceServer(terminal: Terminal, server: Server, config: ServerConfig): void {
  const { publicAddress, controlAddress } = server
  const tls = config['public.tls.cert'] === undefined ? undefined : {}
  const options = { url: config['public.url'], plaintext: config['public.plaintext'], tls }
  const url = publicUrl(options, config.domain ?? [], publicAddress?.port, '<runtime>')
  terminal.banner('callers', `${url} at ${formatAddress(publicAddress!)}`)
  if (controlAddress !== undefined) {
    const [scheme, usual] = config['control.plaintext'] ? ['ws', 80] : ['wss', 443]
    const host = config['control.host']
    // With a URL of its own, something in front of the server has another port.
    const isUsual = config['public.url'] !== undefined || controlAddress.port === usual
    const port = isUsual ? '' : `:${controlAddress.port}`
    terminal.banner('clients', `${scheme}://${host === undefined ? formatAddress(controlAddress) : host + port}`)
  }
  server.on('ready', ({ runtime }) => terminal.note(`${runtime} is connected`))
  server.on('sessionEnded', ({ runtime, reason }) => terminal.note(`a session of ${runtime} ended: ${reason}`))
}
