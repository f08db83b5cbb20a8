/** The rules while the directory cannot be reached. No epoch is granted; the highest that anybody presents wins. */
import { elapsedMs } from '../../protocol/base/elapsed.ts'
import type { InstanceState, RuntimeState } from './directory.ts'
import { forget } from './record.ts'

/** An instance has come back to `replica` and presents the epoch that it last held. With 0, it has none and stands by. */
export function present(
  known: RuntimeState | undefined,
  runtime: string,
  instance: string,
  replica: string,
  presented: number,
): RuntimeState {
  const { epoch: latest, active } = known ?? { epoch: 0, active: '' }
  const held = known?.instances.get(instance)
  const epoch = Math.max(presented, held?.epoch ?? 0)
  const replicas = [...(held?.replicas ?? []).filter(name => name !== replica), replica]
  const wins = epoch > latest || (epoch === latest && epoch > 0 && active === '')
  const next = wins ? instance : active
  return {
    runtime,
    epoch: Math.max(epoch, latest),
    active: next,
    instances: withHolding(known, instance, { epoch, replicas }, next),
    version: (known?.version ?? 0) + 1,
    changedMs: elapsedMs(),
  }
}

/** The instance has left `replica`. */
export function absent(known: RuntimeState, instance: string, replica: string): RuntimeState {
  const held = known.instances.get(instance)
  const replicas = (held?.replicas ?? []).filter(name => name !== replica)
  return {
    ...known,
    instances: withHolding(known, instance, { epoch: held?.epoch ?? 0, replicas }, known.active),
    version: known.version + 1,
    changedMs: elapsedMs(),
  }
}

/** Merges what another replica tells. It knows best which sessions it has itself. Of two epochs, the higher one counts. */
export function merge(known: RuntimeState | undefined, told: RuntimeState, teller: string): RuntimeState {
  if (known === undefined) return told
  const instances = new Map(known.instances)
  for (const name of new Set([...known.instances.keys(), ...told.instances.keys()])) {
    const [ours, theirs] = [known.instances.get(name), told.instances.get(name)]
    const replicas = (ours?.replicas ?? []).filter(replica => replica !== teller)
    if (theirs?.replicas.includes(teller)) replicas.push(teller)
    instances.set(name, { epoch: Math.max(ours?.epoch ?? 0, theirs?.epoch ?? 0), replicas })
  }
  const { epoch, active } = told.epoch > known.epoch || known.active === '' ? told : known
  forgetGone(instances, active)
  return { ...known, epoch: Math.max(epoch, known.epoch), active, instances, version: known.version + 1 }
}

/** Whether two states are equal, apart from version and time. */
export function isSame(a: RuntimeState | undefined, b: RuntimeState): boolean {
  if (a?.epoch !== b.epoch || a.active !== b.active || a.instances.size !== b.instances.size) return false
  for (const [name, { epoch, replicas }] of b.instances) {
    const other = a.instances.get(name)
    if (other?.epoch !== epoch || other.replicas.length !== replicas.length) return false
    if (!replicas.every(replica => other.replicas.includes(replica))) return false
  }
  return true
}

function withHolding(
  known: RuntimeState | undefined,
  instance: string,
  holding: InstanceState,
  active: string,
): ReadonlyMap<string, InstanceState> {
  const instances = new Map([...(known?.instances ?? []), [instance, holding] as const])
  forgetGone(instances, active)
  return instances
}

/** Like the store does, since instances may come and go for as long as it is away. */
function forgetGone(instances: Map<string, InstanceState>, active: string): void {
  forget(instances, active, ({ replicas }) => replicas.length > 0)
}
