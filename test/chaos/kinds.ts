/** The faults of a random schedule: planned ones, which may lose nothing, and unplanned ones. */
import type { Deployment } from './deployment/deployment.ts'
import {
  blackHole,
  cutConnection,
  killClient,
  killRedis,
  killServer,
  pauseRedis,
  pauseServer,
  reloadRoutes,
  renewToken,
  restartServer,
  rotateCertificate,
  rotateKeys,
  takeOver,
  updateClient,
} from './faults.ts'
import type { Random } from './random.ts'

export interface FaultKind {
  readonly name: string
  readonly planned: boolean
  /** Whether it may lose nothing although it is unplanned. */
  readonly lossless?: boolean
  readonly fault: (deployment: Deployment, random: Random) => Promise<void>
}

export const KINDS: readonly FaultKind[] = [
  { name: 'client updated', planned: true, fault: ({ clients }, random) => updateClient(random.pick(clients)) },
  {
    name: 'second instance comes and goes',
    planned: true,
    fault: ({ clients }, random) => takeOver(random.pick(clients)),
  },
  { name: 'replica restarted', planned: true, fault: ({ servers }, random) => restartServer(random.pick(servers)) },
  {
    name: 'token renewed',
    planned: true,
    fault: (deployment, random) => renewToken(deployment, random.pick(deployment.clients)),
  },
  { name: 'keys rotated', planned: true, fault: deployment => rotateKeys(deployment) },
  { name: 'certificate rotated', planned: true, fault: deployment => rotateCertificate(deployment) },
  { name: 'routes reloaded', planned: true, fault: deployment => reloadRoutes(deployment) },
  {
    name: 'connection cut',
    planned: false,
    fault: ({ clients }, random) => cutConnection(random.pick(clients), random),
  },
  {
    name: 'connection black-holed',
    planned: false,
    fault: ({ clients }, random) => blackHole(random.pick(clients), random),
  },
  { name: 'replica killed', planned: false, fault: ({ servers }, random) => killServer(random.pick(servers)) },
  { name: 'client killed', planned: false, fault: ({ clients }, random) => killClient(random.pick(clients)) },
  {
    name: 'replica paused',
    planned: false,
    fault: ({ servers }, random) => pauseServer(random.pick(servers), random.between(500, 6000)),
  },
  { name: 'Redis killed', planned: false, lossless: true, fault: deployment => killRedis(deployment) },
  {
    name: 'Redis paused',
    planned: false,
    lossless: true,
    fault: (deployment, random) => pauseRedis(deployment, random.between(500, 6000)),
  },
]
