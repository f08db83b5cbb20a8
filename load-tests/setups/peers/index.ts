/** The tunnels that the report compares with ours, if their programs are installed. */

import { findProgram } from '../../../cli/demo/programs.ts'
import type { SetupMaker } from '../setup.ts'
import { frp } from './frp.ts'
import { chisel, piko, rathole, ssh } from './others.ts'

export const PEERS = {
  'frp-tcp': frp('tcp'),
  'frp-websocket': frp('websocket'),
  piko,
  chisel,
  rathole,
  ssh,
} as const satisfies Record<string, SetupMaker>

export type PeerName = keyof typeof PEERS

const PROGRAMS: Readonly<Record<PeerName, readonly string[]>> = {
  'frp-tcp': ['frps', 'frpc'],
  'frp-websocket': ['frps', 'frpc'],
  piko: ['piko'],
  chisel: ['chisel'],
  rathole: ['rathole', 'openssl'],
  ssh: ['sshd', 'ssh', 'ssh-keygen'],
}

export const PEER_NAMES = Object.keys(PEERS) as PeerName[]

/**
 * `auto`: those whose programs are on the PATH. `none`: none. Otherwise names separated by commas, with `frp` for both of its
 * transports. A missing program is then an error.
 */
export function choosePeers(text: string): PeerName[] {
  if (text === 'none') return []
  if (text === 'auto') return PEER_NAMES.filter(name => missing(name).length === 0)
  return text.split(',').flatMap(wanted => {
    const names = PEER_NAMES.filter(name => name === wanted || name.startsWith(`${wanted}-`))
    if (names.length === 0) throw new Error(`no peer is called ${wanted}; there are ${PEER_NAMES.join(', ')}`)
    for (const name of names)
      if (missing(name).length > 0) throw new Error(`${name} needs on the PATH: ${missing(name).join(', ')}`)
    return names
  })
}

const missing = (name: PeerName): string[] => PROGRAMS[name].filter(program => findProgram(program) === undefined)
