"""segments.py [--seconds|--short] MODE...: of BERT's graph, layer by layer, alone and beside a training: where does the time go? segments.txt; --seconds: for 16 s, segments2.txt;
--short: segments3.txt, with TALLY_BUNDLE a bundle of 39d426c with priorities.patch, and TALLY_X_RESUME -1, 0, -1 and TALLY_X_SIGNAL 0, 1, 1. LOW: another
training than pointnet (whose name the lines have all the same)."""
import ctypes, json, os, statistics as st, sys, time
import pair
def serve():
    from worker import Lines
    lines=Lines()
    import torch
    import inference_models, stamps
    torch.zeros(1,device='cuda'); torch.cuda.synchronize(); S=stamps.Stamps(64); n=[0]
    def stamp():
        S.place.value=ctypes.addressof(S.stamps)+8*n[0]; n[0]+=1
        e=S.launches(S.function,1,1,1,1,1,1,0,torch.cuda.current_stream().cuda_stream,S.parameters,None); assert e==0,e
    torch.nn.modules.module.register_module_forward_hook(lambda m,i,o: stamp() if type(m).__name__=="BertLayer" else None)
    torch.manual_seed(0)
    with torch.device("cuda"): run, make = inference_models.NETWORKS["bert"]()
    static=tuple(p.cuda() for p in make())
    def once():
        n[0]=0; stamp(); run(*static); stamp()
    with torch.inference_mode():
        for _ in range(5): once()
        torch.cuda.synchronize()
        g,_=inference_models.captured(lambda *a: once(),())
    k=n[0]
    lines.say({"ready":True})
    while True:
        q=lines.poll(None); rows=[]
        for i in range(q["n"]):
            g.replay(); torch.cuda.synchronize()
            v=[S.stamps[j] for j in range(k)]; rows.append([(y-x)/1e3 for x,y in zip(v,v[1:])])
            time.sleep(q["gap"])
        lines.say({"seg":[round(st.median(c),1) for c in zip(*rows)],"p90":[round(st.quantiles(c,n=10)[8],1) for c in zip(*rows)],"sum":round(st.median(map(sum,rows)),1),"p99":round(st.quantiles(map(sum,rows),n=100)[98],1)})
def block(mode,high,label,gap,n=200,layers=None):
    high.say(json.dumps({"n":n,"gap":gap})); r=high.answer(60)
    print(f"{mode:30s} {label:26s} gap {gap*1e3:3.1f} ms: whole {r['sum']} p99 {r['p99']}; median {r['seg'][:layers]}; p90 {r['p90'][:layers]}",flush=True)
# How long the training works, how long it did before the first block; the blocks before, beside and after it.
BOTH=(5,0.7,[("alone",gap) for gap in (0.005,0.0005)],[("beside pointnet",gap) for gap in (0.005,0.0005)*2],("then",0.0005))
SECONDS=(17,0.5,[("alone",0.002,200,3)],[(f"beside pointnet, second {i+1}",0.002,300,3) for i in range(16)],("then",0.002,200,3))
SHORT=(4,0.5,[("alone",0.002,100,3)],[(f"beside pointnet, {i+1}",0.002,200,3) for i in range(4)],("then",0.002,100,3))
def measure(mode,place):
    seconds,lead,alone,beside,then={"--seconds":SECONDS,"--short":SHORT}.get(sys.argv[1],BOTH)
    high=pair.start(place,"high"); low=pair.start(place,"low",os.environ.get("LOW","pointnet")); high.answer(60); low.answer(60)
    for which in alone: block(mode,high,*which)
    low.say(json.dumps({"seconds":seconds})); time.sleep(lead)
    for which in beside: block(mode,high,*which)
    print(mode,low.answer(30)["steps"],f"steps in {seconds} s",flush=True)
    block(mode,high,*then)
    low.end(5); high.end(5)
    print(pair.executors(place),flush=True)
pair.main(serve,measure,[name for name in sys.argv[1:] if not name.startswith("--")])
