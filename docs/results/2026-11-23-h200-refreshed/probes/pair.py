"""A service and a training in processes of their own, in modes of bench/colocation: `high` and `low NAME` are what a script starts itself as."""
import os, sys, json, time
ROOT=os.environ.get("TALLY_BUNDLE","/tmp/tally-bundle")
sys.path[:0]=[ROOT+"/bench/colocation", ROOT+"/bench/support"]
def train(name):
    """Answers {"seconds": S} with how many steps there were; for ever."""
    from worker import Lines
    lines=Lines()
    import torch, training_models
    tr=training_models.build(name)
    lines.say({"ready":True})
    while True:
        q=lines.poll(None); end=time.monotonic()+q["seconds"]; n=0
        while time.monotonic()<end: tr.step()(); n+=1
        torch.cuda.synchronize()
        lines.say({"steps":n})
def start(place,role,*more):
    from child import Child
    kind={"high":"service","low":"training"}[role]
    return Child(place.command([sys.executable,os.path.abspath(sys.argv[0]),role,*more],kind),role,{**os.environ,**place.environment(kind)})
def executors(place): return [(e["domain"],e.get("num_refreshes"),e["num_suspensions"],e["state"]) for e in place.way.ctl("executors")]
def main(serve,measure,names):
    """measure(mode, place) for each mode."""
    if sys.argv[1]=="high": serve()
    if sys.argv[1]=="low": train(sys.argv[2])
    import modes
    for mode in names:
        try:
            with modes.enter(ROOT,mode,False) as place: measure(mode,place)
        except Exception as e: print(mode,"FAILED",repr(e)[:600],flush=True)
