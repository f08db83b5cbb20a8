import { connect } from 'node:tls'
import { messageOf } from '../../protocol/base/errors.ts'
import { guardWith } from '../../protocol/base/guard.ts'
import { formatAddress, type HostPort, readDialled } from '../../protocol/base/host-port.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import { isReplica, PEER_NAME, type PeerTls, peerTlsOptions } from '../../server/peer/tls.ts'
import type { ServerConfig } from '../config/server.ts'

const CONNECT_MS = 5000
const MAX_PEERS = 20

/** Reads from the directory's fields which replicas have a running lease, and the address of each. */
export function livingReplicas(fields: ReadonlyMap<string, string>, nowMs: number): Map<string, string> {
  const [clock, wall] = ['@clock', '@wall'].map(name => Number(fields.get(name) ?? 0)) as [number, number]
  const now = clock + Math.max(0, nowMs - wall)
  const living = new Map<string, string>()
  for (const [name, value] of fields) {
    const [, ends = '0', address = ''] = /^(\d+) ?(.*)$/.exec(value) ?? []
    if (!name.startsWith('@') && Number(ends) > now) living.set(name, address)
  }
  return living
}

/** Dials each replica as another replica would, with the same certificate. */
export async function probePeers(config: ServerConfig, living: ReadonlyMap<string, string>): Promise<Probe[]> {
  const listen = config['peer.listen']
  if (listen === undefined) return []
  const own = formatAddress(config['peer.advertise'] ?? listen)
  const others = [...living].filter(([, address]) => address !== own).slice(0, MAX_PEERS)
  const [cert, key, ca] = await Promise.all(
    (['peer.tls.cert', 'peer.tls.key', 'peer.tls.ca'] as const).map(name => readPlain(config[name]!)),
  )
  return await Promise.all(others.map(([name, address]) => probe(name, address, { cert, key, ca } as PeerTls)))
}

async function probe(name: string, address: string, tls: PeerTls): Promise<Probe> {
  const about = {
    code: 'peer',
    what: `replica ${name} at ${address || 'no address'}`,
    expected: 'a replica of this authority',
  }
  const begun = performance.now()
  const to = readDialled(address)
  const problem = to === undefined ? 'it advertises no address that can be dialled' : await problemOf(to, tls)
  if (problem === undefined) {
    return { ...about, status: 'ok', found: `in ${(performance.now() - begun).toFixed(1)} ms`, hint: '' }
  }
  const hint =
    'Replicas must be able to reach its --peer.advertise, and all certificates must come from one --peer.tls.ca.'
  return { ...about, status: 'fail', found: problem, hint }
}

function problemOf(to: HostPort, tls: PeerTls): Promise<string | undefined> {
  return new Promise(resolve => {
    const socket = connect({ ...peerTlsOptions(tls), ...to, servername: PEER_NAME })
    const done = (problem: string | undefined) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(problem)
    }
    const guard = guardWith(error => done(messageOf(error)))
    const late = guard(() => done(`no answer within ${CONNECT_MS / 1000} s`))
    const timer = setTimeout(late, CONNECT_MS)
    const broken = guard((error: NodeJS.ErrnoException) => done(error.message || error.code))
    // With TLS 1.3, only the first data or the close shows whether the peer accepted our certificate.
    const secured = guard(() => {
      if (!isReplica(socket)) done('something else is listening there')
    })
    const onData = guard(() => done(undefined))
    const closed = guard(() => done('it closed the connection: it may not trust our certificate'))
    socket.on('error', broken)
    socket.once('secureConnect', secured)
    socket.once('data', onData)
    socket.once('close', closed)
  })
}
