/** What is so while the directory cannot be asked. No epoch is granted: the highest that anybody presents wins. */
import type { Holding, Standing } from './directory.ts'

/** An instance has come back to `replica`, presenting the epoch that it last held (0: none; then it stands by). */
export function present(
  known: Standing | undefined,
  runtime: string,
  instance: string,
  replica: string,
  presented: number,
): Standing {
  const { epoch: latest, active } = known ?? { epoch: 0, active: '' }
  const held = known?.instances.get(instance)
  const epoch = Math.max(presented, held?.epoch ?? 0)
  const replicas = [...(held?.replicas ?? []).filter(name => name !== replica), replica]
  const wins = epoch > latest || (epoch === latest && epoch > 0 && active === '')
  return {
    runtime,
    epoch: Math.max(epoch, latest),
    active: wins ? instance : active,
    instances: withHolding(known, instance, { epoch, replicas }),
    version: (known?.version ?? 0) + 1,
    changedMs: performance.now(),
  }
}

/** The instance has left `replica`. */
export function absent(known: Standing, instance: string, replica: string): Standing {
  const held = known.instances.get(instance)
  const replicas = (held?.replicas ?? []).filter(name => name !== replica)
  return {
    ...known,
    instances: withHolding(known, instance, { epoch: held?.epoch ?? 0, replicas }),
    version: known.version + 1,
    changedMs: performance.now(),
  }
}

function withHolding(known: Standing | undefined, instance: string, holding: Holding): ReadonlyMap<string, Holding> {
  return new Map([...(known?.instances ?? []), [instance, holding]])
}
