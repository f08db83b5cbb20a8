/** The public listener and the control endpoint, or one address for both, and their certificates. */
import { createServer as createNetServer, type Server as NetServer, type Socket } from 'node:net'
import type { SallyportError } from '../protocol/base/errors.ts'
import { ignore, logGuard } from '../protocol/base/guard.ts'
import { formatAddress } from '../protocol/base/host-port.ts'
import { demand } from '../protocol/base/limit.ts'
import { KEEP_ALIVE } from '../protocol/base/tcp.ts'
import type { Handler, HttpRequest } from '../protocol/exchange.ts'
import { patienceOf } from '../protocol/http/connection-set.ts'
import { type ListenAddress, listenOn, stopListening } from '../protocol/http/listen-on.ts'
import { type Listener, type ListenerOptions, listen, type TlsMaterial } from '../protocol/http/listener.ts'
import { CertificateFolder } from './certificate-folder.ts'
import { ControlEndpoint, type EndpointOptions } from './control/endpoint.ts'
import type { ResolvedServerOptions } from './options.ts'
import { SniFront } from './sni-front.ts'
import { type Authorities, loadTls, refuseAuthorities, type TlsFiles, TlsKeeper, type TlsPair } from './tls.ts'

/** The actual address and port of a listener. */
export interface Address {
  readonly host: string
  readonly port: number
}

interface ListenersOptions extends Omit<EndpointOptions, 'control' | 'tls' | 'limits' | 'logger'> {
  readonly settings: ResolvedServerOptions
  /** Handles the requests of callers. */
  readonly handler: Handler
  readonly onBadRequest: (error: SallyportError, request: HttpRequest) => void
  readonly corsOf: ListenerOptions['corsOf']
}

/** How long closed sessions may take for the WebSocket closing handshake. */
const GOODBYE_MS = 1000

export class Listeners {
  readonly #options: ListenersOptions
  readonly #settings: ResolvedServerOptions
  #listener: Listener | undefined
  #front: NetServer | undefined
  #sniFront: SniFront | undefined
  #publicKeeper: TlsKeeper | undefined
  #controlKeeper: TlsKeeper | undefined
  #folder: CertificateFolder | undefined
  #opening: Promise<void> | undefined
  control: ControlEndpoint | undefined
  publicAddress: Address | undefined
  controlAddress: Address | undefined

  constructor(options: ListenersOptions) {
    this.#options = options
    this.#settings = options.settings
  }

  /** Connections of callers. */
  get callers(): number {
    return this.#listener?.connections ?? 0
  }

  /** When each certificate expires, in ms since 1970. */
  get certificates(): Record<string, number> {
    const hosts = this.#folder?.expiresAt
    return {
      ...(hosts !== undefined && { hosts }),
      ...(this.#publicKeeper && { public: this.#publicKeeper.expiresAt }),
      ...(this.#controlKeeper && { control: this.#controlKeeper.expiresAt }),
    }
  }

  open(): Promise<void> {
    this.#opening = this.#openControl().then(() => this.#openPublic())
    return this.#opening
  }

  async #openControl(): Promise<void> {
    const { control, limits, logger } = this.#settings
    if (control === undefined) return
    const files =
      control.plaintext === true || control.tls === undefined
        ? undefined
        : withAuthorities(control.tls, control.clientCa)
    const tls = files === undefined ? undefined : await loadTls(files)
    const endpoint = new ControlEndpoint({ ...this.#options, control, tls, limits, logger })
    this.control = endpoint
    if (files !== undefined && tls !== undefined) {
      this.#controlKeeper = new TlsKeeper(files, tls, fresh => endpoint.setTls(fresh), logger)
    }
    if (control.port === undefined) return
    const { host, port, fd } = control
    this.controlAddress = await endpoint.listen({ host, port, fd, reusePort: this.#settings.reusePort })
    this.#say('control', this.controlAddress)
  }

  async #openPublic(): Promise<void> {
    const { public: options, control, logger } = this.#settings
    if (options === undefined) return
    const { handler, onBadRequest, corsOf } = this.#options
    const clientCa = callersAuthorities(this.#settings)
    const files = options.tls && withAuthorities(options.tls, clientCa)
    const pair = files && (await loadTls(files))
    const tls = pair && asking(pair)
    if (options.tlsFolder !== undefined) {
      this.#folder = await CertificateFolder.open(options.tlsFolder, logger, pair?.ca)
    }
    const folder = this.#folder
    const contextFor = folder && ((name: string) => folder.find(name))
    const shared = control?.hostName
    const { host, port, fd } = options
    const address = { host, port, fd, reusePort: this.#settings.reusePort }
    const place = shared === undefined ? address : {}
    const listener = await listen({
      ...{ tls, contextFor, handler, logger, limits: options.limits, onBadRequest, corsOf, ...place },
      boundsBodies: true,
    })
    this.#listener = listener
    if (files !== undefined && pair !== undefined) {
      const apply = (fresh: TlsPair) => {
        listener.setTls(asking(fresh))
        folder?.setAuthorities(fresh.ca)
      }
      this.#publicKeeper = new TlsKeeper(files, pair, apply, logger)
    }
    this.publicAddress = shared === undefined ? listener.address : await this.#openFront(shared, address)
    this.#say('public', this.publicAddress)
    if (this.controlAddress !== undefined || shared === undefined) return
    this.controlAddress = this.publicAddress
    this.#say('control', this.controlAddress)
  }

  /** One address for both; the server name (SNI) decides. */
  async #openFront(controlName: string, place: ListenAddress): Promise<Address> {
    const front = new SniFront({
      controlName: controlName.toLowerCase(),
      control: socket => this.control!.accept(socket, true),
      edge: socket => this.#listener!.accept(socket),
      logger: this.#settings.logger,
    })
    this.#sniFront = front
    const guard = logGuard(this.#settings.logger, 'a connection could not be taken')
    const accept = guard((socket: Socket) => front.accept(socket))
    const options = { pauseOnConnect: true, noDelay: true, allowHalfOpen: true, ...KEEP_ALIVE }
    this.#front = createNetServer(options, accept)
    return listenOn(this.#front, place, this.#settings.logger)
  }

  #say(name: string, address: Address): void {
    this.#settings.logger.info({ name, address: formatAddress(address) }, 'listening')
  }

  /** See `Server.reload`. */
  async reload(fresh: { publicTls?: TlsFiles; controlTls?: TlsFiles }): Promise<boolean> {
    const { control } = this.#settings
    const { publicTls, controlTls } = fresh
    demand(publicTls === undefined || this.#publicKeeper !== undefined, 'publicTls: the public listener has no TLS')
    demand(controlTls === undefined || this.#controlKeeper !== undefined, 'controlTls: the control endpoint has no TLS')
    const authorities = callersAuthorities(this.#settings)
    if (authorities === undefined) refuseAuthorities('publicTls', publicTls)
    const results = await Promise.all([
      this.#publicKeeper?.reload(publicTls && keepingAuthorities(publicTls, authorities)),
      this.#folder?.reload(),
      this.#controlKeeper?.reload(controlTls && keepingAuthorities(controlTls, control?.clientCa)),
    ])
    return !results.includes(false)
  }

  /**
   * Stops accepting connections, after which `closed` resolves. `callersGone` resolves when all callers have gone, at the latest after
   * `graceMs`. With `last`, connections are accepted until the present callers have gone; see `CloseOptions` of the listener.
   */
  stop(graceMs: number, last = false): { closed: Promise<void>; callersGone: Promise<void> } {
    const { promise: closed, resolve } = Promise.withResolvers<void>()
    const onStop = async () => {
      if (this.#front !== undefined) await stopListening(this.#front, { fd: this.#settings.public?.fd })
      // Requests may be on their way.
      await this.#sniFront?.emptied(patienceOf(graceMs))
      this.control?.stop()
      resolve()
    }
    const callersGone = this.#listener?.close({ graceMs, last, onStop }) ?? onStop()
    return { closed, callersGone }
  }

  /** Ends what is still connected. WebSockets finish their closing handshake, if `graceMs` allows. */
  async close(graceMs: number): Promise<void> {
    // A start that is aborted may be in the middle of it.
    await this.#opening?.catch(ignore)
    await this.stop(0).callersGone
    this.#sniFront?.close()
    this.#publicKeeper?.close()
    this.#folder?.close()
    this.#controlKeeper?.close()
    await this.control?.emptied(Math.min(graceMs, GOODBYE_MS))
    this.control?.close()
  }
}

function callersAuthorities({ access }: ResolvedServerOptions): Authorities | undefined {
  return access.find(({ clientCa }) => clientCa !== undefined)?.clientCa
}

function withAuthorities(tls: TlsFiles, ca: Authorities | undefined): TlsFiles {
  return ca === undefined ? tls : { ...tls, ca }
}

/** Without an explicit `ca`, all authorities of the system would be trusted. */
function keepingAuthorities(fresh: TlsFiles, ca: Authorities | undefined): TlsFiles {
  return { ...fresh, ca: fresh.ca ?? ca }
}

/**
 * Asks callers for a certificate if there are authorities for it. The handshake succeeds without a valid one, so that the refusal
 * can be an HTTP response.
 */
function asking(pair: TlsPair): TlsMaterial {
  return pair.ca === undefined ? pair : { ...pair, requestCert: true, rejectUnauthorized: false }
}
